// SPDX-License-Identifier: Apache-2.0
// Locales in which numbers and letters are not those of C, made by localedef in a folder of the
// test's, so that no package is needed.
#pragma once

#include <clocale>
#include <cstdlib>
#include <fstream>
#include <locale>
#include <string>

#include "support/scratch_folder.hpp"

namespace test {

/// Numbers of streams like "1.234,5".
struct Commas final : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

/// While an object lives, the program has this locale, for C and for C++: a decimal comma, groups
/// of three digits, and for "tr_TR" no upper case of i in ASCII.
class ForeignLocale {
 public:
  explicit ForeignLocale(const std::string& name) : before_(std::locale::classic()) {
    std::ofstream(folder_.path() / "source") << source(name == "tr_TR");
    const std::string made = folder_.path() / name;
    const std::string command = "localedef -c -i '" + (folder_.path() / "source").string() +
                                "' -f ISO-8859-9 '" + made + "' >/dev/null 2>&1";
    static_cast<void>(std::system(command.c_str()));  // its warnings count as failures
    setenv("LOCPATH", folder_.path().c_str(), 1);
    has_c_ = std::setlocale(LC_ALL, name.c_str()) != nullptr;
    std::locale::global(std::locale(std::locale::classic(), new Commas));
    if (has_c_) std::setlocale(LC_ALL, name.c_str());  // the line above may have reset it
  }
  ~ForeignLocale() {
    std::locale::global(before_);
    std::setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
  }
  ForeignLocale(const ForeignLocale&) = delete;
  ForeignLocale& operator=(const ForeignLocale&) = delete;

  /// False where there is no localedef: then only streams have the locale.
  [[nodiscard]] bool has_c() const { return has_c_; }

 private:
  static std::string source(bool is_turkish) {
    const std::string pairs =
        is_turkish ? "toupper (<U0069>,<U0130>);(<U0131>,<U0049>);(<U0061>,<U0041>)\n"
                     "tolower (<U0049>,<U0131>);(<U0130>,<U0069>);(<U0041>,<U0061>)\n"
                   : "";
    return "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \"<U002C>\"\n"
           "thousands_sep \"<U002E>\"\ngrouping 3;3\nEND LC_NUMERIC\nLC_CTYPE\n"
           "upper <U0041>;<U0042>;<U0049>;<U0130>\nlower <U0061>;<U0062>;<U0069>;<U0131>\n" +
           pairs + "END LC_CTYPE\n";
  }

  ScratchFolder folder_;
  std::locale before_;
  bool has_c_ = false;
};

}  // namespace test

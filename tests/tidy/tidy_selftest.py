#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks each rule of tidy_test.py in a small tree, and checks that it is reported, there alone."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import tidy_test  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"

# A class with 45 methods, and what is none: members, types, friends.
LARGEST = ("namespace tutti {\nclass Largest {\n public:\n  explicit Largest(int);\n"
           + "".join(f"  int f{i}() const {{ return h(); }}\n" for i in range(22))
           + "".join(f"  template <class T>\n  void g{i}(T);\n" for i in range(22))
           + "  using F = int (*)(int);\n  friend void h(int);\n  struct Inner {\n    void f();\n"
             "  };\n  int i = h(2);\n  int j{h(3)};\n};\n}\n")

# A tree that keeps every rule, with what comes near to breaking one.
GOOD = {
    "CMakeLists.txt": "option(TUTTI_BUILD_TESTS \"\" ON)\n",
    "include/README.md": "Headers.\n",
    "include/tutti/settings.hpp": SPDX + "#include <map>\n/// TUTTI_TIMEOUT: seconds.\n",
    "include/tutti/mpi.hpp": SPDX + "#include <mpi.h>\n",
    "include/tutti/all.hpp": SPDX + '#include "tutti/settings.hpp"\n' + "//\n" * 248,
    "include/tutti/marked.hpp": SPDX + "#define TUTTI_API\nnamespace tutti {\n"
        "TUTTI_API int f(int x = {});\n"
        "inline int g() { return f(); }\nusing H = std::function<int(int)>;\n"
        "class TUTTI_API C {\n public:\n  explicit C(int);\n};\n"
        "struct D {\n  D() = default;\n  int h() const { return 1; }\n  int i{};\n"
        "  int j = f(2);\n};\n"
        "template <class T>\nclass E {\n  int i();\n};\n}\n",
    "include/tutti/c/e.h": SPDX + "#include <stdint.h>\n#include <stddef.h>\n"
                                  "enum { TUTTI_NO = 0, TUTTI_YES = 1 };\n",
    "include/tutti/c.h": SPDX + '#include "tutti/c/e.h"\n#define TUTTI_C_H\n',
    "collectives/README.md": "Algorithms; TUTTI_TIMEOUT and TUTTI_BUILD_TESTS are known.\n",
    "collectives/CMakeLists.txt": "add_library(c a.cpp wait/wait.cpp)\n",
    "collectives/a.cpp": SPDX + '#include "tutti/settings.hpp"\n#include "collectives/a.hpp"\n'
                                "#include <immintrin.h>\n#include <cstdint>\n",
    "collectives/a.hpp": SPDX + "//" + "x" * 98 + "\n" + "//\n" * 498,
    "collectives/wait/wait.cpp": SPDX + "#include <sched.h>\n",
    "runtime/README.md": "Adapters.\n 2 | mpi mpi/plugin cuda |\n 1 | . | remark\n"
                         " 0 | collectives collectives/wait\n",
    "runtime/CMakeLists.txt": "add_library(r mpi/b.cpp\n  mpi/plugin/e.cpp cuda/d.cpp)\n",
    "runtime/mpi/plugin/e.cpp": SPDX + "#include <mpi.h>\n",
    "runtime/mpi/b.cpp": SPDX + '#include <vector>\n#include "collectives/a.hpp"\n'
                                '#include <sys/mman.h>\n#include "runtime/b.hpp"\n',
    "runtime/b.hpp": SPDX + "#define TUTTI_CHECK(x) x\nint x = TUTTI_YES;\n",
    "runtime/largest.hpp": SPDX + LARGEST,
    "runtime/two.hpp": SPDX + "class Two {\n  void f();\n  void g();\n  class Impl;\n};\n",
    "runtime/cuda/d.cpp": SPDX + "#include <cuda_runtime.h>\n#include <nccl.h>\n"
                                 "namespace tutti {\nvoid Two::f() {}\nint* Two::g() {}\n}\n",
    "apps/README.md": "Programs.\n",
    "apps/CMakeLists.txt": "add_executable(p p.cpp)\n",
    "apps/p.cpp": SPDX + "#include <tutti/settings.hpp>\n#include <Eigen/Core>\n"
                         '#include "support/p.hpp"\n',
    "apps/support/p.hpp": SPDX,
    "tests/README.md": "Tests.\n```sh\n# d\n```\n## C\n",
    "tests/CMakeLists.txt": "tutti_unit_test(t FILES unit/t_test.cpp\n"
                            "  ${PROJECT_SOURCE_DIR}/tests/support/main.cpp)\n"
                            "add_executable(d c/d_test.c)\n"
                            "foreach(name l_test m_test)\n  add(${name}.cpp)\nendforeach()\n",
    "tests/support/main.cpp": SPDX,
    "tests/l_test.cpp": SPDX,
    "tests/c/d_test.c": SPDX + "#include <tutti/c.h>\n",
    "tests/unit/t_test.cpp": SPDX + '#include <mpi.h>\n#include "runtime/b.hpp"\n'
                                    '// misspelt on purpose: TUTTI_TIMOUT\n',
    "scripts/mpirun/README.md": "# A *test*, B's\n[all](test.sh) [up](../../apps/)\n"
                                "[here](#a-test-bs) [there](../../tests/README.md#c)\n"
                                "[far](https://x.org/y#z)\n",
    "scripts/mpirun/test.sh": "echo no marks: XXXL, TODOS\n",
    ".ci/run": "scripts/mpirun/test.sh\n",
    "build/junk.cpp": "\tusing namespace std; // not looked at\n",
    ".git/junk.cpp": "\tusing namespace std; // not looked at\n",
}

# (rule, file, line, content): the content replaces the file, or is a file more.
BAD = [
    ("quoted_includes", "include/tutti/x.hpp", 2, SPDX + '#include "collectives/a.hpp"\n'),
    ("quoted_includes", "collectives/a.cpp", 2, SPDX + '#include "runtime/b.hpp"\n'),
    ("quoted_includes", "collectives/a.cpp", 2, SPDX + '#include "a.hpp"\n'),
    ("quoted_includes", "collectives/a.cpp", 2, SPDX + '#include "apps/support/p.hpp"\n'),
    ("quoted_includes", "runtime/b.hpp", 3, SPDX + '\n  # include "support/p.hpp"\n'),
    ("quoted_includes", "runtime/b.hpp", 2, SPDX + '#include "tests/support/mpi_test.hpp"\n'),
    ("quoted_includes", "apps/p.cpp", 2, SPDX + '#include "runtime/b.hpp"\n'),
    ("quoted_includes", "apps/p.cpp", 2, SPDX + '#include "collectives/a.hpp"\n'),
    ("floors", "runtime/b.hpp", 2, SPDX + '#include "runtime/mpi/b.hpp"\n'),
    ("floors", "runtime/cuda/d.cpp", 2, SPDX + '#include "runtime/mpi/b.hpp"\n'),
    ("floors", "runtime/README.md", 1, {"runtime/new/b.hpp": SPDX}),
    ("floors", "runtime/README.md", 2, "2 | mpi mpi/plugin |\n 2 | gone cuda\n"
                                       "1 | .\n0 | collectives collectives/wait\n"),
    ("standard_only", "include/tutti/x.hpp", 2, SPDX + "#include <boost/any.hpp>\n"),
    ("standard_only", "include/tutti/x.hpp", 2, SPDX + "#include <immintrin.h>\n"),
    ("standard_only", "collectives/a.cpp", 2, SPDX + "#include <unistd.h>\n"),
    ("standard_only", "collectives/wait/wait.cpp", 2, SPDX + "#include <sys/mman.h>\n"),
    ("c_headers", "include/tutti/c.h", 2, SPDX + '#include "tutti/settings.hpp"\n'),
    ("c_headers", "include/tutti/c.h", 2, SPDX + "#include <stdio.h>\n"),
    ("c_headers", "include/tutti/c.h", 2, SPDX + "#include <cstdint>\n"),
    ("layer_in_brackets", "apps/p.cpp", 2, SPDX + "#include <runtime/b.hpp>\n"),
    ("layer_in_brackets", "runtime/b.hpp", 2, SPDX + "#include <tutti/settings.hpp>\n"),
    ("vendor_headers", "runtime/b.hpp", 2, SPDX + "#include <mpi.h>\n"),
    ("vendor_headers", "runtime/mpi/b.cpp", 2, SPDX + "#include <mpi.h>\n"),
    ("vendor_headers", "apps/p.cpp", 2, SPDX + "#include <mpi.h>\n"),
    ("vendor_headers", "runtime/mpi.hpp", 2, SPDX + "#include <mpi.h>\n"),
    ("standard_only", "include/tutti/mpi.hpp", 2, SPDX + "#include <sys/mman.h>\n"),
    ("vendor_headers", "runtime/b.hpp", 2, SPDX + "#include <cuda_runtime.h>\n"),
    ("vendor_headers", "runtime/mpi/b.cpp", 2, SPDX + "#include <nccl.h>\n"),
    ("vendor_headers", "apps/p.cpp", 2, SPDX + "#include <cublas_v2.h>\n"),
    ("vendor_headers", "runtime/cuda/d.cpp", 2, SPDX + "#include <mpi.h>\n"),
    ("file_length", "collectives/a.hpp", 501, SPDX + "//\n" * 500),
    ("file_length", "include/tutti/all.hpp", 251, SPDX + "//\n" * 250),
    ("file_length", "scripts/mpirun/test.sh", 501, "#\n" * 501),
    ("line_length", "collectives/a.hpp", 2, SPDX + "//" + "x" * 99 + "\n"),
    ("line_length", "apps/CMakeLists.txt", 2, "add_executable(p p.cpp)\n#" + "x" * 100 + "\n"),
    ("line_length", "scripts/mpirun/test.sh", 1, "#" + "x" * 100 + "\n"),
    ("line_length", ".ci/run", 1, "#" + "x" * 100 + "\n"),
    ("class_size", "runtime/largest.hpp", 3,
     SPDX + LARGEST.replace("  using F", "  ~Largest();\n  using F")),
    ("class_in_one_source", "runtime/mpi/b.cpp", 3, SPDX + "// Two::f() {}\n"
     "std::vector<int> tutti::Two::g() const {\n  return {};\n}\nvoid Two::h() {}\n"),
    ("tabs", "apps/p.cpp", 2, SPDX + "\tint x;\n"),
    ("tabs", "apps/README.md", 1, "a\tb\n"),
    ("license_line", "apps/p.cpp", 1, "#include <vector>\n"),
    ("license_line", "apps/p.cpp", 1, "\n" + SPDX),
    ("license_line", "apps/support/p.hpp", 1, ""),
    ("license_line", "tests/c/d_test.c", 1, ""),
    ("readme", "bindings", 1, {"bindings/CMakeLists.txt": ""}),
    ("readme", "scripts", 1, {"scripts/other/run.sh": ""}),
    ("links", "README.md", 2, "A [page](apps/README.md),\na [file](apps/gone.cpp)\n"),
    ("links", "README.md", 1, "[a heading](tests/README.md#gone)\n"),
    ("links", "README.md", 1, "[a comment](tests/README.md#d)\n"),
    ("unfinished_marks", "README.md", 1, "TO" "DO: more\n"),
    ("unfinished_marks", "apps/p.cpp", 2, SPDX + "// FIX" "ME\n"),
    ("unfinished_marks", ".clang-tidy", 1, "# XX" "X\n"),
    ("built_sources", "runtime/mpi/c.cpp", 1, SPDX),
    ("built_sources", "apps/t_test.cpp", 1, SPDX),
    ("built_sources", "apps/cp.cpp", 1, SPDX),
    ("built_sources", "tests/unit/u_test.cpp", 1, SPDX),
    ("built_sources", "tests/n_test.cpp", 1, SPDX),
    ("built_sources", "tests/unit/m_test.cpp", 1, SPDX),
    ("built_sources", "tests/unit/main.cpp", 1, SPDX),
    ("built_sources", "tests/c/e_test.c", 1, SPDX),
    ("built_sources", "apps/p.cpp", 1, {"apps/CMakeLists.txt": "# p.cpp\n"}),
    ("using_namespace_std", "apps/p.cpp", 2, SPDX + "  using  namespace std;\n"),
    ("old_doctest", "tests/l_test.cpp", 2, SPDX + 'f(doctest::Contains("x"));\n'),
    ("documented_variables", "apps/p.cpp", 2, SPDX + '// TUTTI_TIMOUT\n'),
    ("documented_variables", "apps/p.cpp", 2, SPDX + "int x = TUTTI_MAYBE;\n"),
    ("exported_declarations", "include/tutti/x.hpp", 2, SPDX + "int f(int x = {});\n"),
    ("exported_declarations", "include/tutti/x.hpp", 3, SPDX + "namespace tutti {\n"
     "std::function<int()> f(int);\n}\n"),
    ("exported_declarations", "include/tutti/x.hpp", 2, SPDX + "class C : public B {\n"
     " public:\n  int f() const { return 1; }\n  explicit C(int);\n};\n"),
    ("exported_declarations", "include/tutti/x.h", 3, SPDX + 'extern "C" {\nint f(void);\n}\n'),
    ("documented_variables", "README.md", 1, "Set `TUTTI_UNKNOWN=1`.\n"),
]


def write_tree(root, tree):
    for path, content in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")


def check(tree):
    """What tidy_test.py finds in a tree of these files."""
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), tree)
        return tidy_test.findings(folder)


def run(tree):
    """(exit status, printed lines) of the program on a tree of these files."""
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), tree)
        done = subprocess.run([sys.executable, "-B", tidy_test.__file__, folder], check=False,
                              capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()


class TidySelftest(unittest.TestCase):
    def test_a_good_tree_has_no_finding(self):
        self.assertEqual(check(GOOD), [])

    def test_each_violation_is_reported_where_it_is(self):
        for rule, path, line, content in BAD:
            with self.subTest(rule=rule, path=path, content=content):
                more = content if isinstance(content, dict) else {path: content}
                found = [finding[:3] for finding in check({**GOOD, **more})]
                self.assertEqual(found, [(path, line, rule)])

    def test_all_findings_are_printed_with_file_line_and_rule(self):
        status, printed = run({**GOOD, "apps/p.cpp": "\tusing namespace std;\n", "apps/q.cpp": ""})
        self.assertEqual(status, 3)
        self.assertEqual([line.split(": ")[:2] for line in printed], [
            ["apps/p.cpp:1", "license_line"], ["apps/p.cpp:1", "tabs"],
            ["apps/p.cpp:1", "using_namespace_std"], ["apps/q.cpp:1", "built_sources"],
            ["apps/q.cpp:1", "license_line"], ["tidy", "5 findings"]])

    def test_without_findings_the_program_succeeds(self):
        self.assertEqual(run(GOOD), (0, ["tidy: 0 findings"]))

    def test_every_rule_is_broken_by_a_case(self):
        self.assertEqual({rule.__name__ for rule in tidy_test.RULES}, {case[0] for case in BAD})

    def test_a_folder_that_is_no_source_tree_is_refused(self):
        self.assertEqual(run({"README.md": ""}), (1, []))


if __name__ == "__main__":
    unittest.main()

// SPDX-License-Identifier: Apache-2.0
// The choice of the MPI of a process, by the MPI that it has loaded, its settings and its launcher.
#include <doctest/doctest.h>
#include <optional>
#include <string>

#include "tutti/error.hpp"

#include "runtime/mpi/choice.hpp"

using tutti::Error;
using tutti::ErrorScope;
using tutti::MpiAbi;
using tutti::mpi::ChosenMpi;
using tutti::mpi::Surroundings;

namespace {

Surroundings with_both() {
  Surroundings here;
  here.plugins = {MpiAbi::openmpi, MpiAbi::mpich};
  here.folder = "/lib/tutti";
  return here;
}

Surroundings with_openmpi() {
  Surroundings here = with_both();
  here.plugins = {MpiAbi::openmpi};
  return here;
}

tutti::Launch launch_of(const char* mpi, int size, int rank = 0) {
  return {"a launcher", "SIZE=" + std::to_string(size), size, rank, mpi};
}

bool takes(const Surroundings& here, MpiAbi abi, bool may_be_none) {
  const ChosenMpi choice = choose_mpi(here);
  return choice.abi == abi && choice.may_be_none == may_be_none;
}

std::optional<Error> error_of(const Surroundings& here) {
  try {
    choose_mpi(here);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::string said(const Surroundings& here) {
  const auto error = error_of(here);
  return error ? error->what() : "no error";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the launcher's MPI is taken, and without a launcher the build's, if it is there") {
  Surroundings here = with_both();
  CHECK(takes(here, MpiAbi::openmpi, true));
  here.launch = launch_of("mpich", 2);
  CHECK(takes(here, MpiAbi::mpich, false));
  here.launch = launch_of("openmpi", 2);
  CHECK(takes(here, MpiAbi::openmpi, false));
  here.launch = launch_of("mpich", 1);
  CHECK(takes(here, MpiAbi::mpich, true));
  here.launch = launch_of("mpich", 0, 1);  // a launcher that does not say how many there are
  CHECK(takes(here, MpiAbi::mpich, false));
}

TEST_CASE("a launcher of any MPI leaves it to PMIx, and else to the order of the plug-ins") {
  Surroundings here = with_both();
  here.plugins = {MpiAbi::mpich, MpiAbi::openmpi};
  here.launch = launch_of("", 2);
  CHECK(takes(here, MpiAbi::mpich, false));
  here.has_pmix = true;
  CHECK(takes(here, MpiAbi::openmpi, false));
  here.launch.reset();
  CHECK(takes(here, MpiAbi::openmpi, false));
  here.plugins = {MpiAbi::mpich};
  CHECK(takes(here, MpiAbi::mpich, false));
}

TEST_CASE(
    "a launcher's MPI without a plug-in or a library of its own is served by the standard ABI") {
  Surroundings here = with_openmpi();
  here.plugins.push_back(MpiAbi::standard);
  here.launch = launch_of("mpich", 2);
  CHECK(takes(here, MpiAbi::standard, false));
  here.launch = launch_of("openmpi", 2);
  CHECK(takes(here, MpiAbi::openmpi, false));
  CHECK(choose_mpi(here).or_standard);
  CHECK_FALSE(choose_mpi(with_both()).or_standard);
  here.wanted = "openmpi";  // named by a setting, it is the only choice
  CHECK_FALSE(choose_mpi(here).or_standard);
  here.wanted = "standard";
  CHECK(takes(here, MpiAbi::standard, false));
  here.loaded = {"MPICH 5.0.2", "/opt/libmpi_abi.so.1", /*has_standard_abi=*/true};
  CHECK(takes(here, MpiAbi::standard, false));
  CHECK(choose_mpi(here).library == "/opt/libmpi_abi.so.1");
}

TEST_CASE("TUTTI_MPI goes before the launcher, and the program's own MPI before both") {
  Surroundings here = with_both();
  here.launch = launch_of("openmpi", 2);
  here.wanted = "mpich";
  CHECK(takes(here, MpiAbi::mpich, false));
  here.loaded = {"MPICH 4.0.2", "/opt/libmpi.so.12"};
  CHECK(takes(here, MpiAbi::mpich, false));
  CHECK(choose_mpi(here).library == "/opt/libmpi.so.12");
  here.wanted = "auto";
  CHECK(takes(here, MpiAbi::mpich, false));
  here.wanted = "openmpi";
  CHECK(said(here) ==
        "TUTTI_MPI=openmpi, but this process has loaded MPICH 4.0.2 (/opt/libmpi.so.12), and "
        "cannot have two MPIs; unset TUTTI_MPI, or start a program without that MPI");
}

TEST_CASE("an MPI without a plug-in is an error that says what to build") {
  const std::string missing =
      "this build of Tutti has no plug-in for MPICH: expected libtutti-mpi-mpich.so, found "
      "libtutti-mpi-openmpi.so in /lib/tutti; build Tutti with -DTUTTI_MPIS=MPICXX, the mpicxx of "
      "MPICH";
  Surroundings here = with_openmpi();
  here.wanted = "mpich";
  CHECK(said(here) == "TUTTI_MPI=mpich: " + missing);
  here.wanted = "auto";
  here.loaded = {"MPICH 4.0.2", ""};
  CHECK(said(here) == "this process has loaded MPICH 4.0.2, and " + missing);
  here.loaded = {"LAM 7", "libmpi.so.0"};
  CHECK(said(here) ==
        "this process has loaded an MPI that Tutti does not know, LAM 7 (libmpi.so.0); expected "
        "Open MPI, one of MPICH's kin, or an MPI with the standard ABI");
  here.plugins.clear();
  here.loaded.reset();
  here.wanted = "openmpi";
  CHECK(has(said(here), "expected libtutti-mpi-openmpi.so, found none in /lib/tutti"));
}

TEST_CASE("ranks of a launcher without a plug-in throw alike, and rank 0 says it") {
  Surroundings here = with_openmpi();
  for (const int rank : {0, 1}) {
    here.launch = launch_of("mpich", 2, rank);
    const auto error = error_of(here);
    REQUIRE(error);
    CHECK(error->scope() == ErrorScope::agreed);
    CHECK(error->reporter() == (rank == 0));
    CHECK(has(error->what(),
              "a launcher has started 2 processes (SIZE=2), but this build of Tutti "
              "has no plug-in for MPICH: "));
    CHECK(has(error->what(), "TUTTI_LAUNCHER=ignore"));
  }
  here.launch = launch_of("mpich", 0, 1);
  CHECK(has(said(here), "has started several processes"));
  here.launch = launch_of("mpich", 1);  // a process alone takes any MPI
  CHECK(takes(here, MpiAbi::openmpi, true));
}

TEST_CASE("without any plug-in a process alone goes on, and several do not") {
  Surroundings here = with_both();
  here.plugins.clear();
  CHECK(choose_mpi(here).may_be_none);
  here.launch = launch_of("", 2);
  CHECK(said(here) ==
        "several processes have been started, but there is no plug-in for any MPI in /lib/tutti; "
        "install Tutti as a whole, or build it with -DTUTTI_MPIS=MPICXX");
}

TEST_CASE("MPIs are known by what they say of themselves") {
  using tutti::mpi::abi_of;
  CHECK(abi_of({"Open MPI v4.1.4", ""}) == MpiAbi::openmpi);
  for (const char* text : {"MPICH 4.0.2", "Intel(R) MPI Library 2021.9 for Linux* OS",
                           "MVAPICH 3.0", "CRAY MPICH version 8.1.25"}) {
    CHECK(abi_of({text, ""}) == MpiAbi::mpich);
    CHECK(abi_of({text, "", /*has_standard_abi=*/true}) == MpiAbi::standard);
  }
  CHECK_FALSE(abi_of({"LAM 7", ""}));
  CHECK(abi_of({"LAM 7", "", /*has_standard_abi=*/true}) == MpiAbi::standard);
  CHECK(tutti::mpi::short_version("MPICH Version:\t4.0.2\nMPICH Release date:") == "MPICH 4.0.2");
  CHECK(tutti::mpi::short_version("Open MPI v4.1.4, package: Debian") == "Open MPI v4.1.4");
}

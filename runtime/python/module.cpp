// SPDX-License-Identifier: Apache-2.0
// The module tutti._core. Programs see tutti/__init__.py.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tutti/gpu.hpp"
#include "tutti/launch.hpp"
#include "tutti/optimizers.hpp"
#include "tutti/preemption.hpp"
#include "tutti/program.hpp"

#include "runtime/python/arguments.hpp"
#include "runtime/python/array.hpp"
#include "runtime/python/calls.hpp"
#include "runtime/python/communicator.hpp"
#include "runtime/python/type_errors.hpp"

namespace tutti::python {

namespace {

ErrorCode code_of(const std::string& name) {
  for (int code = 1; code <= static_cast<int>(ErrorCode::divergence); ++code) {
    if (name == to_string(static_cast<ErrorCode>(code))) return static_cast<ErrorCode>(code);
  }
  return ErrorCode::user_code;
}

/// Speaks in place of the reporter: a rank that learned of the failure from another leaves that one
/// time to print the reason and to end the job. Python's hooks may keep it from either, so then
/// this rank prints what it knows.
void speak_for_reporter(const std::string& program, const std::string& text) {
  constexpr auto kGrace = std::chrono::seconds(2);
  std::this_thread::sleep_for(kGrace);
  std::cerr << program + ": error: " + text + "\n" << std::flush;
}

/// Ends the job after an exception that the program has not caught; returns the exit code where all
/// ranks have raised it, and end by themselves.
int end_job(const std::string& program, const std::string& code, const std::string& text,
            bool is_agreed, bool is_reporter) {
  if (!is_agreed && !is_reporter) speak_for_reporter(program, text);
  return run_program(program, [&]() -> int {
    if (code.empty()) throw std::runtime_error(text);
    throw Error(code_of(code), text, is_agreed ? ErrorScope::agreed : ErrorScope::failed,
                is_reporter);
  });
}

/// Signals of preemption for Python. They end with close(), even if the program still has the
/// object.
class PySignals {
 public:
  void close() noexcept { signals_.reset(); }
  void pass_on() noexcept {
    if (signals_) signals_->pass_on();
    close();
  }
  [[nodiscard]] bool received() const noexcept { return signals_ && signals_->received(); }

 private:
  std::optional<PreemptionSignals> signals_{std::in_place};
};

/// True if a launcher has started this process as one of several, or does not tell their number. A
/// batch script of Slurm's is no such process.
bool is_launched() {
  const std::optional<Launch> launch = find_launch();
  return launch && launch->size != 1;
}

/// Launch::mpi of a launcher that is_launched() speaks of; "any" where it may be any MPI's.
std::string launched_for() {
  if (!is_launched()) return {};
  const std::string mpi = find_launch()->mpi;
  return mpi.empty() ? "any" : mpi;
}

void bind_program(nb::module_& module) {
  nb::class_<PySignals>(module, "_PreemptionSignals")
      .def(nb::init<>())
      .def("pass_on", &PySignals::pass_on,
           "From now on it is as if there had never been this object: a signal that has come "
           "comes again.")
      .def("received", &PySignals::received,
           "True once a signal has come to this rank. Other ranks may not know of it.")
      .def("close", &PySignals::close,
           "The signals do again what they did before; what they asked for is forgotten.");
  module.def("is_launched", is_launched,
             "True where a launcher has started this process as one of several.");
  module.def("launched_for", launched_for,
             "The MPI whose launcher has started this process as one of several: \"openmpi\", "
             "\"mpich\", \"any\", or \"none\" as torchrun has; empty if no launcher has.");
  module.def(
      "launcher",
      [] {
        const std::optional<Launch> launch = find_launch();
        return launch ? launch->launcher + " (" + launch->evidence + ")" : std::string();
      },
      "What has started this process, and the variables that say so; empty if nothing has.");
  module.def(
      "rank_mark",
      [] {
        const char* mark = std::getenv("_TUTTI_RANK");
        return std::string(mark == nullptr ? "" : mark);
      },
      "What the library has put into the environment of a rank; empty before there is a job.");
  module.def("end_job", end_job, nb::arg("program"), nb::arg("code"), nb::arg("text"),
             nb::arg("is_agreed"), nb::arg("is_reporter"));
  module.def("version", version);
  module.def("build_info", build_info, "Library version, compiler, MPI and vector instructions.");
  module.def("num_gpus", num_gpus, "How many GPUs this process can use.");
  module.def(
      "set_stream",
      [](nb::handle device, std::uintptr_t stream) {
        const Device asked = read_device(device);
        blocking([&] { set_stream(asked, reinterpret_cast<void*>(stream)); });
      },
      nb::arg("device"), nb::arg("stream"),
      "Work with arrays on this GPU goes into this stream: torch.cuda.current_stream().cuda_stream "
      "for example; 0 is the default stream, which it is until one is set.");
  module.def(
      "synchronize",
      [](nb::handle device) {
        const Device asked = read_device(device);
        blocking([&] { synchronize(asked); });
      },
      nb::arg("device"),
      "Returns when all that the library has put into the GPU's stream has run. Raises what a push "
      "that is in the stream failed with.");
  module.def("describe_gpus", describe_gpus, "The GPUs, or why there are none.");
  module.attr("EXIT_REQUEUE") = kExitRequeue;
}

}  // namespace

void bind_optimizers(nb::module_& module) {
  nb::class_<Optimizer>(module, "Optimizer",
                        "How weights follow from gradients. All ranks change its options alike.")
      .def_prop_ro("name", &Optimizer::name, "As optimizer() was called with.")
      .def_prop_rw(
          "learning_rate", &Optimizer::learning_rate,
          [](Optimizer& self, double learning_rate) {
            blocking([&] { self.set_learning_rate(learning_rate); });
          },
          "The rate before schedule and multipliers.")
      .def_prop_ro("_num_states", &Optimizer::num_states)
      .def(
          "set_momentum",
          [](Optimizer& self, double momentum) { blocking([&] { self.set_momentum(momentum); }); },
          nb::arg("momentum"),
          "Changes the option momentum, or beta1 where there is none, from the next push on.\n\n"
          "Raises InvalidArgumentError for a value out of its range, an optimizer that has "
          "neither, "
          "or a change from or to 0 where a state comes or goes with it.")
      .def_prop_ro(
          "weight_decay", [](const Optimizer& self) { return self.options().weight_decay; },
          "The option, before multipliers.")
      .def_prop_ro(
          "schedule",
          [](const Optimizer& self) -> std::optional<std::string> {
            if (!self.options().schedule) return std::nullopt;
            return name_of(*self.options().schedule);
          },
          "The name of its schedule, which decides the rate; None without.")
      .def(
          "set_schedule",
          [](Optimizer& self, const std::optional<std::string>& name, const nb::kwargs& options) {
            const auto schedule = schedule::create(option_text(name.value_or("none"), options));
            blocking([&] { self.set_schedule(schedule); });
          },
          nb::arg("name").none(), nb::arg("options"),
          "The schedule from the next push on: set_schedule(\"cosine\", max_update=10000). None is "
          "none; the rate is then learning_rate.\n\nRaises InvalidArgumentError for an unknown "
          "name "
          "or option, or a value out of its range.")
      .def(
          "set_lr_mult",
          [](Optimizer& self, nb::handle key, double factor) {
            const Key named = read_key(key);
            blocking([&] { self.set_lr_mult(named, factor); });
          },
          nb::arg("key"), nb::arg("factor"), "A factor of one key's learning rate.")
      .def(
          "set_wd_mult",
          [](Optimizer& self, nb::handle key, double factor) {
            const Key named = read_key(key);
            blocking([&] { self.set_wd_mult(named, factor); });
          },
          nb::arg("key"), nb::arg("factor"), "A factor of one key's weight decay.")
      .def("__repr__",
           [](const Optimizer& self) { return "<tutti.Optimizer " + self.describe() + ">"; });
  module.def(
      "optimizer",
      [](const std::string& name, const nb::kwargs& options) {
        return optimizer::create(option_text(name, options));
      },
      nb::arg("name"), nb::arg("options"),
      "An optimizer by its name: optimizer(\"sgd\", momentum=0.9, schedule=\"cosine\", "
      "max_update=1000).\n\nRaises InvalidArgumentError for an unknown name or option.");
  module.def("optimizer_names", optimizer::names, "The names that optimizer() knows.");
  module.def("optimizer_help", optimizer::help, "The options of all optimizers, as text.");
}

}  // namespace tutti::python

NB_MODULE(_core, module) {
  using namespace tutti::python;
  nb::set_leak_warnings(false);  // the process may end with stores in global variables
  translate_errors(module);
  bind_array(module);
  bind_communicator(module);
  bind_optimizers(module);
  bind_store(module);
  bind_program(module);
  shorten_type_errors(module);
  watch_signals();
  watch_forks();
}

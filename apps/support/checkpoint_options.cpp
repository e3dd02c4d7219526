// SPDX-License-Identifier: Apache-2.0
#include "support/checkpoint_options.hpp"

#include "support/command_line.hpp"

namespace po = boost::program_options;

namespace apps {

void add_checkpoint_options(po::options_description& all, CheckpointOptions& options) {
  all.add_options()("checkpoint-dir", po::value(&options.directory),
                    "folder to save the run in (default: none); its parent must exist")(
      "checkpoint-every", po::value(&options.every)->default_value(0),
      "steps from one checkpoint to the next (0: one at the end of each epoch)")(
      "resume", po::value(&options.resume)->default_value("auto"),
      "auto: go on from the checkpoint if there is one; must: refuse to start without one; "
      "never: start anew");
}

void check(const CheckpointOptions& options) {
  if (options.every < 0) throw_bad_option("--checkpoint-every: expected at least 0");
  if (options.resume != "auto" && options.resume != "never" && options.resume != "must") {
    throw_bad_option("--resume: expected auto, never or must, found '" + options.resume + "'");
  }
  if (options.is_on()) return;
  if (options.every > 0) throw_bad_option("--checkpoint-every needs --checkpoint-dir");
  if (options.resume == "must") throw_bad_option("--resume must needs --checkpoint-dir");
}

}  // namespace apps

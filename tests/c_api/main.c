// SPDX-License-Identifier: Apache-2.0
#include "tests.h"

int main(void) {
  static const test_case kTests[] = {
      {"the tour, for every type of store", test_tour},
      {"texts and large numbers are keys; items of one key are summed", test_keys_and_lists},
      {"pushpull and broadcast write outputs, or values", test_pushpull_and_broadcast},
      {"every dtype and number of dimensions arrives element by element", test_dtypes_and_shapes},
      {"buffers and views are memory of the store", test_memory},
      {"rank, number of workers, type and capabilities", test_questions},
      {"an updater in C sees key, sum and replica, and the store", test_updater},
      {"an optimizer from a string, and its learning rate", test_optimizer},
      {"asynchronous pushes of keys in any order are complete when they are waited for",
       test_pending},
      {"asynchronous calls fill their outputs", test_pending_outputs},
      {"errors of asynchronous calls come with the wait, or at once", test_pending_errors},
      {"multipliers of keys", test_multipliers},
      {"rows of a table are pushed and pulled", test_rows},
      {"an updater in C sees the merged rows and the table", test_row_updater},
      {"wrong rows on one rank are an error on all", test_bad_rows},
      {"compression sends what was left with the next push", test_compression},
      {"a store is saved and loaded, with what its program adds", test_save_and_load},
      {"an optimizer's states are saved and loaded", test_optimizer_states},
      {"wrong paths and metadata on one rank are an error on all", test_bad_paths},
      {"a signal to one rank asks all to stop", test_signals},
      {"GPUs that are not there are refused", test_gpus},
      {"a signal that is passed on comes again", test_signals_passed_on},
      {"a request of one rank is known to all", test_requests_to_stop},
      {"every collective gives every element, for every dtype and operation", test_collectives},
      {"a communicator says where it is; a store can be made over it", test_communicator},
      {"wrong items on one rank are an error on all", test_bad_items},
      {"wrong arguments of a collective on one rank are an error on all",
       test_bad_collective_arguments},
      {"NULL and handles of another kind are recognised", test_bad_handles},
      {"wrong arguments of local calls name the argument", test_bad_local_arguments},
      {"wrong types and settings name what is right", test_bad_creation},
      {"errors of the library come through with their code", test_errors_of_the_library},
      {"one rank's failure becomes everybody's", test_agree},
      {"the last error is each thread's own", test_last_error},
  };
  return run_tests(kTests, sizeof kTests / sizeof *kTests);
}

// SPDX-License-Identifier: Apache-2.0
// The functions that report on a store or a communicator.
#include "tutti/c/observe.h"

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/handles.hpp"

using namespace tutti::c_api;  // NOLINT: the functions below are their C interface
using tutti::Communicator;
using tutti::KVStore;

namespace {

tutti_call_totals totals_of(const tutti::Statistics& statistics, const char* call) {
  const tutti::CallStatistics sum = statistics.total(call == nullptr ? "" : call);
  const tutti::LastRank last = sum.last.empty() ? tutti::LastRank{.rank = -1} : sum.last.front();
  return {.calls = sum.calls,
          .bytes = sum.bytes,
          .seconds = sum.seconds,
          .waiting_seconds = sum.waiting_seconds,
          .last_rank = last.rank,
          .last_rank_calls = last.calls,
          .last_rank_seconds = last.seconds};
}

}  // namespace

int tutti_kvstore_keys(tutti_kvstore* kv, const tutti_key** keys, int* num_keys) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore& handle = open(here, "kv", kv);
    const tutti_key*& list = required(here, "keys", keys);
    int& count = required(here, "num_keys", num_keys);
    tutti_kvstore::Keys now{.keys = handle.store.keys(), .as_structs = {}};
    for (const tutti::Key& key : now.keys) now.as_structs.push_back(to_c(key));
    handle.keys = std::move(now);
    list = handle.keys.as_structs.data();
    count = static_cast<int>(handle.keys.as_structs.size());
  });
}

int tutti_kvstore_verify(tutti_kvstore* kv, tutti_verify_result* result) {
  return on_store(__func__, kv, [&](const Place&, KVStore& store) {
    const tutti::VerifyResult found = store.verify();
    if (result == nullptr) return;
    *result = {.bytes = found.bytes,
               .healed = found.healed,
               .healed_since_creation = found.healed_since_creation};
  });
}

int tutti_kvstore_call_totals(const tutti_kvstore* kv, const char* call,
                              tutti_call_totals* totals) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    required(here, "totals", totals) = totals_of(store.statistics(), call);
  });
}

int tutti_communicator_call_totals(const tutti_communicator* communicator, const char* call,
                                   tutti_call_totals* totals) {
  return on_communicator(__func__, communicator, [&](const Place& here, const Communicator& ranks) {
    required(here, "totals", totals) = totals_of(ranks.statistics(), call);
  });
}

int tutti_kvstore_statistics(tutti_kvstore* kv, const char** text) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore& handle = open(here, "kv", kv);
    const char*& table = required(here, "text", text);
    handle.statistics = to_string(handle.store.statistics());
    table = handle.statistics.c_str();
  });
}

int tutti_communicator_statistics(tutti_communicator* communicator, const char** text) {
  return guarded(__func__, [&](const Place& here) {
    tutti_communicator& handle = open(here, "communicator", communicator);
    const char*& table = required(here, "text", text);
    handle.statistics = to_string(handle.communicator.statistics());
    table = handle.statistics.c_str();
  });
}

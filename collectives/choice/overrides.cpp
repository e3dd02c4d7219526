// SPDX-License-Identifier: Apache-2.0
#include "collectives/choice/overrides.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "tutti/error.hpp"

#include "collectives/job/fused_layout.hpp"

namespace tutti::collectives {

namespace {

/// One override: its text and its value.
struct Asked {
  std::string_view word;
  std::string_view value;
};

struct Override {
  std::string_view name;
  std::string_view values;  ///< shown in the list of all overrides
  bool chooses_path;  ///< it fixes the way of data through a node, where nothing is learnt then
  void (*read)(Tuning& tuning, const Asked& asked);
};

std::size_t bytes_of(const Asked& asked) {
  try {
    return parse_bytes(std::string(asked.value));
  } catch (const Error& error) {
    throw Error(error.code(),
                "TUTTI_ALGORITHMS: '" + std::string(asked.word) + "': " + error.what());
  }
}

std::size_t bytes_of(const Asked& asked, std::size_t most) {
  const std::size_t bytes = bytes_of(asked);
  if (bytes <= most) return bytes;
  throw_unexpected(asked.word, "at most " + std::to_string(most / 1024) + "K");
}

int number_of(const Asked& asked, const std::string& what) {
  int number = 0;
  const char* const end = asked.value.data() + asked.value.size();
  const auto [parsed, error] = std::from_chars(asked.value.data(), end, number);
  if (error == std::errc() && parsed == end && number > 0) return number;
  throw_unexpected(asked.word, "a number of " + what + " above 0");
}

template <class Choice>
Choice one_of(const Asked& asked, std::initializer_list<Choice> all) {
  std::string known;
  for (const Choice choice : all) {
    if (asked.value == name_of(choice)) return choice;
    known += (known.empty() ? "" : ", ") + std::string(name_of(choice));
  }
  throw_unexpected(asked.word, "one of " + known);
}

void read_pieces(Tuning& tuning, const Asked& asked) {
  const int pieces = number_of(asked, "pieces");
  if (!std::has_single_bit(static_cast<unsigned>(pieces)) || pieces > Tuning::kMostPieces) {
    throw_unexpected(asked.word, "1, 2, 4 or 8");
  }
  tuning.pieces = pieces;
}

void read_ring_chunk(Tuning& tuning, const Asked& asked) {
  tuning.ring_chunk_bytes = bytes_of(asked) / FusedLayout::kAlignment * FusedLayout::kAlignment;
  if (tuning.ring_chunk_bytes == 0) throw_unexpected(asked.word, "64 bytes or more");
}

void read_paths(Tuning& tuning, const Asked& asked) {
  if (asked.value != "in-turn") throw_unexpected(asked.word, "in-turn");
  tuning.paths_in_turn = true;
}

/// Sets the exchange. It then carries all sums that are too large for the handshakes, so halving in
/// the handshakes is turned off.
void read_exchange(Tuning& tuning, const Asked& asked) {
  tuning.exchange = one_of(asked, {Exchange::direct, Exchange::halving, Exchange::mpi});
  if (!tuning.halved) tuning.halved = 0;
}

// Each row sets the member of Tuning with the corresponding name, described in tuning.hpp.
constexpr Override kOverrides[] = {
    {"inline-shared", "BYTES", true,
     [](Tuning& to, const Asked& asked) {
       to.inline_shared_bytes = bytes_of(asked, kInlineBytes);
     }},
    {"inline-private", "BYTES", true,
     [](Tuning& to, const Asked& asked) {
       to.inline_private_bytes = bytes_of(asked, kInlineBytes);
     }},
    {"streamed-slots", "BYTES", true,
     [](Tuning& to, const Asked& asked) {
       to.streamed_slot_bytes = to.streamed_update_bytes = bytes_of(asked);
     }},
    {"streamed-outputs", "BYTES", true,
     [](Tuning& to, const Asked& asked) { to.streamed_output_bytes = bytes_of(asked); }},
    {"direct-outputs", "BYTES", false,
     [](Tuning& to, const Asked& asked) { to.direct_output_bytes = bytes_of(asked); }},
    {"ring", "BYTES", false,
     [](Tuning& to, const Asked& asked) { to.ring_bytes = bytes_of(asked); }},
    {"ring-chunk", "BYTES", false, read_ring_chunk},
    {"own-sums", "RANKS", true,
     [](Tuning& to, const Asked& asked) { to.own_sum_ranks = number_of(asked, "ranks"); }},
    {"inputs", "announced|staged|swapped|fetched", true,
     [](Tuning& to, const Asked& asked) {
       to.inputs =
           one_of(asked, {Inputs::announced, Inputs::staged, Inputs::swapped, Inputs::fetched});
     }},
    {"results", "spread|own|fetched|updated", true,
     [](Tuning& to, const Asked& asked) {
       to.results =
           one_of(asked, {Results::spread, Results::own, Results::fetched, Results::updated});
     }},
    {"paths", "in-turn", true, read_paths},
    {"wait-group", "RANKS", false,
     [](Tuning& to, const Asked& asked) { to.wait_group = number_of(asked, "ranks"); }},
    {"in-flight", "CHUNKS", false,
     [](Tuning& to, const Asked& asked) {
       to.chunks_in_flight = static_cast<std::size_t>(number_of(asked, "chunks"));
     }},
    {"pieces", "1|2|4|8", false, read_pieces},
    {"chain", "BYTES", false,
     [](Tuning& to, const Asked& asked) { to.chain_bytes = bytes_of(asked); }},
    {"halved", "BYTES", false,
     [](Tuning& to, const Asked& asked) { to.halved = bytes_of(asked, Tuning::kMostHalved); }},
    {"handshakes", "direct|doubling", false,
     [](Tuning& to, const Asked& asked) {
       to.handshakes = one_of(asked, {Handshakes::direct, Handshakes::doubling});
     }},
    {"exchange", "direct|halving|mpi", false, read_exchange},
};

std::string all_overrides() {
  std::string all;
  for (const Override& known : kOverrides) {
    if (!all.empty()) all += &known == std::end(kOverrides) - 1 ? " or " : ", ";
    all += std::string(known.name) + "=" + std::string(known.values);
  }
  return all + ", separated by commas";
}

void read(Tuning& tuning, std::string_view word) {
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const auto known = std::find_if(std::begin(kOverrides), std::end(kOverrides),
                                  [&](const Override& each) { return each.name == name; });
  if (known == std::end(kOverrides)) throw_unexpected(word, all_overrides());
  if (known->chooses_path) tuning.learns = false;
  known->read(tuning, {word, equals == std::string_view::npos ? std::string_view()
                                                              : word.substr(equals + 1)});
}

}  // namespace

void throw_unexpected(std::string_view override_asked, const std::string& expected) {
  throw Error(ErrorCode::invalid_argument,
              "TUTTI_ALGORITHMS: '" + std::string(override_asked) + "': expected " + expected);
}

void override_choices(Tuning& tuning, std::string_view overrides) {
  while (!overrides.empty()) {
    const std::string_view word = overrides.substr(0, overrides.find(','));
    overrides.remove_prefix(std::min(overrides.size(), word.size() + 1));
    read(tuning, word);
  }
}

}  // namespace tutti::collectives

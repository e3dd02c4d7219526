// SPDX-License-Identifier: Apache-2.0
// Gradient compression: formats in fewer bytes that a push may send instead of float32.
//
// Keys on GPUs take part, for the sake of a slow network between nodes. With leg=all, GPUs pack all
// formats but topk and keep the residuals, and packed bytes cross to the hosts. The hosts pack the
// rest, to which the values cross uncompressed, and keep those residuals. The hosts exchange and
// sum: each push waits for the data that crosses, and the sums cross back, uncompressed. The update
// runs on the GPU. So in one node a compression of keys on GPUs only costs. The bits are those of
// keys on the cpu, where a key has up to three values; NCCL, and TUTTI_GPU_PATH, have no part in
// compressed pushes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/export.h"

namespace tutti {

namespace compression {

/// The part of a push that is compressed.
enum class Leg : std::uint8_t {
  /// The gradients that each rank pushes. Every rank gets the packed gradients of all ranks and
  /// sums them.
  all,
  /// The sum over its ranks that each node sends to the others. Within a node nothing is lost, and
  /// one node alone compresses nothing. The result depends on which ranks share a node.
  between,
};

/// No compression: all elements are sent as they are.
struct None {};

// In the formulas g is a gradient's element and r its residual, which starts at 0:
// r += g; q is sent; r -= q. Each sender has residuals of its own, for each key.

/// q = +threshold if r >= threshold, -threshold if r <= -threshold, else 0. A 16th of the bytes.
struct TwoBit {
  double threshold = 0.5;  ///< above 0, as a float32
  Leg leg = Leg::all;
};

/// q = +1 if r > threshold, else -1. A 32nd of the bytes.
struct OneBit {
  double threshold = 0.5;  ///< finite, as a float32
  Leg leg = Leg::all;
};

/// q = g rounded to float16 or bfloat16; no residual. Half of the bytes. Values that float16 cannot
/// hold (65520 and above) become infinite.
struct Float16 {
  Leg leg = Leg::all;
};
struct BFloat16 {
  Leg leg = Leg::all;
};

/// q = r for the max(1, ceil(ratio * count)) elements of a key with the largest abs(r), 0 for the
/// rest. 2 * ratio of the bytes. With Leg::between a key is cut into pieces that choose separately.
struct TopK {
  double ratio = 0.01;  ///< above 0, at most 1
  Leg leg = Leg::all;
};

}  // namespace compression

using Compression = std::variant<compression::None, compression::TwoBit, compression::OneBit,
                                 compression::Float16, compression::BFloat16, compression::TopK>;

namespace compression {

/// Makes a compression from its name and options: "2bit,threshold=0.5",
/// "topk,ratio=0.01,leg=between", "none". The names are none, 2bit, 1bit, fp16, bf16 and topk; the
/// options are the fields of the structs.
/// Errors  invalid_argument: an unknown name or option, with the nearest and all known ones; an
///         option given twice; a value that cannot be read or is out of its range.
TUTTI_API Compression create(std::string_view text);

/// The names that create() knows.
TUTTI_API std::vector<std::string> names();

/// The bytes that one sender sends to one receiver for `count` elements of a key. (Pieces of a key
/// that top-k chooses from separately add up to a little more.)
TUTTI_API std::size_t packed_bytes(const Compression& compression, std::size_t count);

/// Name and all options, as create() takes them: "2bit,threshold=0.5,leg=all".
TUTTI_API std::string to_string(const Compression& compression);
inline std::string in_words(const Compression& options) {  // the former name
  return to_string(options);
}

/// One line per name with the options and their defaults. For --help.
TUTTI_API std::string help();

}  // namespace compression

}  // namespace tutti

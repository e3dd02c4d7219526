// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/gradient_compression.hpp"

#include <algorithm>
#include <cmath>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/base/fields.hpp"

namespace tutti {

namespace compression {

namespace {

const OptionBounds kFiniteFloat{
    [](double value) { return std::isfinite(static_cast<float>(value)); },
    "a number that float32 can hold"};
const OptionBounds kPositiveFloat{[](double value) {
                                    const auto number = static_cast<float>(value);
                                    return std::isfinite(number) && number > 0.0f;
                                  },
                                  "a number above 0 that float32 can hold"};

/// The names of the legs, in the order of Leg.
constexpr const char* kLegs[] = {"all", "between"};

OptionFields fields_of(None& /*options*/) { return {}; }
OptionFields fields_of(TwoBit& options) {
  return {{"threshold", &options.threshold, &kPositiveFloat},
          {"leg", OptionChoice(&options.leg, kLegs)}};
}
OptionFields fields_of(OneBit& options) {
  return {{"threshold", &options.threshold, &kFiniteFloat},
          {"leg", OptionChoice(&options.leg, kLegs)}};
}
OptionFields fields_of(Float16& options) { return {{"leg", OptionChoice(&options.leg, kLegs)}}; }
OptionFields fields_of(BFloat16& options) { return {{"leg", OptionChoice(&options.leg, kLegs)}}; }
OptionFields fields_of(TopK& options) {
  return {{"ratio", &options.ratio, &bounds::kUpToOne}, {"leg", OptionChoice(&options.leg, kLegs)}};
}
OptionFields fields_of(Compression& options) {
  return std::visit([](auto& one) { return fields_of(one); }, options);
}

const std::vector<Compression>& kinds() {
  static const std::vector<Compression> kKinds = {None{},    TwoBit{},   OneBit{},
                                                  Float16{}, BFloat16{}, TopK{}};
  return kKinds;
}

/// The names of the compressions, in the order of Compression's alternatives, and of kinds().
constexpr const char* kNames[] = {"none", "2bit", "1bit", "fp16", "bf16", "topk"};
static_assert(std::size(kNames) == std::variant_size_v<Compression>);

std::string owner_of(const Compression& options) {
  return std::string("compression ") + kNames[options.index()];
}

void check(const Compression& options) {
  Compression copy = options;
  for (const OptionField& field : fields_of(copy)) check_field(owner_of(options), field);
}

struct CodecOf {
  using Made = std::unique_ptr<collectives::Codec>;
  Made operator()(const None& /*options*/) const { return nullptr; }
  Made operator()(const TwoBit& options) const {
    return collectives::two_bit_codec(static_cast<float>(options.threshold));
  }
  Made operator()(const OneBit& options) const {
    return collectives::one_bit_codec(static_cast<float>(options.threshold));
  }
  Made operator()(const Float16& /*options*/) const {
    return collectives::half_codec(DType::float16);
  }
  Made operator()(const BFloat16& /*options*/) const {
    return collectives::half_codec(DType::bfloat16);
  }
  Made operator()(const TopK& options) const { return collectives::top_k_codec(options.ratio); }
};

Leg leg_of(const Compression& options) {
  return std::visit(
      []<class One>(const One& one) {
        if constexpr (std::is_same_v<One, None>)
          return Leg::all;
        else
          return one.leg;
      },
      options);
}

}  // namespace

Compression create(std::string_view text) {
  const std::string name(text.substr(0, text.find(',')));
  const auto found = std::ranges::find(kNames, name);
  if (found == std::end(kNames)) {
    throw Error(ErrorCode::invalid_argument, unknown_name("compression", name, names()));
  }
  Compression options = kinds()[static_cast<std::size_t>(found - std::begin(kNames))];
  OptionWords words(owner_of(options), text.substr(name.size()), "");
  words.read(fields_of(options));
  words.require_all_read();
  check(options);
  return options;
}

std::vector<std::string> names() { return {std::begin(kNames), std::end(kNames)}; }

std::size_t packed_bytes(const Compression& options, std::size_t count) {
  check(options);
  const auto codec = std::visit(CodecOf(), options);
  return codec == nullptr ? count * sizeof(float) : codec->packed_bytes(count);
}

std::string to_string(const Compression& options) {
  Compression copy = options;
  return kNames[options.index()] + options_text(fields_of(copy));
}

std::string help() {
  std::string text = "Compressions, with the defaults of their options (leg=all|between):\n";
  for (const Compression& kind : kinds()) text += "  " + to_string(kind) + "\n";
  return text;
}

}  // namespace compression

GradientCompression::GradientCompression(const Compression& options) : options_(options) {
  compression::check(options_);
  leg_ = compression::leg_of(options_);
  codec_ = std::visit(compression::CodecOf(), options_);
}

void GradientCompression::require_packable(const Entry& entry) const {
  if (codec_ == nullptr) return;
  const std::string name = tutti::to_string(entry.key, entry.shape(), entry.dtype()) + ": " +
                           compression::to_string(options_);
  if (entry.dtype() != DType::float32) {
    throw Error(ErrorCode::invalid_argument,
                name +
                    " compresses float32 values only; keep other keys in a store without "
                    "compression");
  }
  if (!codec_->can_cut() && entry.shape().count() > collectives::kMostTopK) {
    throw Error(ErrorCode::invalid_argument, name +
                                                 " numbers elements with 32 bits; this key has " +
                                                 std::to_string(entry.shape().count()));
  }
}

std::uint64_t GradientCompression::fingerprint() const {
  if (codec_ == nullptr) return 0;
  return Digest().add(std::string_view(compression::to_string(options_))).value();
}

std::string GradientCompression::describe() const {
  return codec_ == nullptr ? "" : ", compressed by " + compression::to_string(options_);
}

float* residual_of(Entry& entry) {
  if (!entry.residual) entry.residual = Tensor::zeros(entry.shape(), DType::float32);
  return entry.residual->values<float>().data();
}

}  // namespace tutti

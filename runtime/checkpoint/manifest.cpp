// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manifest.hpp"

#include <nlohmann/json.hpp>

#include "tutti/error.hpp"

#include "runtime/checkpoint/seal.hpp"

namespace tutti::checkpoint {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBegin = "{\"xxh3\":\"";

Json to_json(const Writer& writer) {
  return {{"job", writer.job},
          {"host", writer.host},
          {"pid", writer.process},
          {"begun", writer.begun},
          {"written", writer.written}};
}

Writer writer_in(const Json& json) {
  return {.job = json.at("job").get<std::string>(),
          .host = json.at("host").get<std::string>(),
          .process = json.at("pid").get<std::int64_t>(),
          .begun = json.at("begun").get<std::int64_t>(),
          .written = json.at("written").get<std::int64_t>()};
}

}  // namespace

void require_known_format(std::uint64_t format) {
  if (format <= kFormat) return;
  throw Error(ErrorCode::io, "it was written by a later version of the library, in format " +
                                 std::to_string(format) + "; this one reads formats up to " +
                                 std::to_string(kFormat) + ": load it with the version that saved");
}

std::string to_text(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"header_xxh3", file.seal}};
  }
  Json json{{"xxh3", kUnsealed},
            {"format", kFormat},
            {"generation", manifest.generation},
            {"files", files},
            {"metadata", manifest.metadata},
            {"pushes", manifest.pushes}};
  if (!manifest.writer.host.empty()) json["writer"] = to_json(manifest.writer);
  std::string text = json.dump() + "\n";
  if (text.size() > kMostManifestBytes) {
    throw Error(ErrorCode::invalid_argument, "the metadata have " + std::to_string(text.size()) +
                                                 " bytes, expected at most " +
                                                 std::to_string(kMostManifestBytes));
  }
  seal(text, kBegin.size());
  return text;
}

Manifest parse_manifest(std::string_view text) {
  if (!text.starts_with(kBegin) || seal_of(text, kBegin.size()).empty()) {
    throw Error(ErrorCode::corrupt_file, "its content is not what was written (checksum)");
  }
  try {
    const Json json = Json::parse(text);
    require_known_format(json.at("format").get<std::uint64_t>());
    Manifest manifest;
    manifest.generation = json.at("generation").get<std::uint64_t>();
    manifest.metadata = json.at("metadata").get<Metadata>();
    manifest.pushes = json.value("pushes", std::uint64_t{0});
    if (json.contains("writer")) manifest.writer = writer_in(json.at("writer"));
    for (const auto& [name, file] : json.at("files").items()) {
      manifest.files[name] = {file.at("bytes").get<std::uint64_t>(),
                              file.at("header_xxh3").get<std::string>()};
    }
    return manifest;
  } catch (const Json::exception&) {
    throw Error(ErrorCode::corrupt_file, "it is sealed, but not a manifest");
  }
}

}  // namespace tutti::checkpoint

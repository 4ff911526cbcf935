#include "checkpoint/merge.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "checkpoint/named_hdf5.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/scatter_writer.hpp"
#include "checkpoint/sweep.hpp"
#include "device/host/arithmetic.hpp"

namespace ration::checkpoint {
namespace {

/// Where a tensor's bytes go.
struct Target {
  std::size_t file = 0;
  std::uint64_t offset = 0;
};

/// The outputs, made with everything but the tensors' bytes.
struct Outputs {
  std::vector<OutputFile> files = {};
  std::vector<Target> targets = {};  ///< by tensor
  std::string index = {};            ///< "" where one file holds all
};

Outputs make_hdf5(const Manifest& manifest, const TensorList& list,
                  const std::filesystem::path& output) {
  Outputs made;
  OutputFile& file = made.files.emplace_back(output);
  const TensorOffsets offsets = create_named_hdf5(file.temporary(), manifest, list,
                                                  [](std::size_t) { return contiguous_storage(); });
  file.open();
  for (const std::uint64_t offset : offsets) made.targets.push_back({.offset = offset});
  return made;
}

// Which file holds which tensor: in order, a new file where the next one would be too much.
std::vector<std::size_t> split(const TensorList& list, std::uint64_t largest) {
  std::vector<std::size_t> files;
  std::size_t file = 0;
  std::uint64_t bytes = 0;
  for (const NamedTensor& tensor : list.tensors) {
    if (largest > 0 && bytes > 0 && bytes + tensor.bytes() > largest) {
      ++file;
      bytes = 0;
    }
    bytes += tensor.bytes();
    files.push_back(file);
  }
  return files;
}

// Names may be any bytes, JSON holds UTF-8.
std::string text_of(const nlohmann::json& json) {
  try {
    return json.dump();
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument("safetensors holds only UTF-8 names, and one is not; merge to HDF5");
  }
}

std::map<std::string, std::string> metadata_of(const Manifest& manifest, const TensorList& list) {
  std::map<std::string, std::string> metadata{{"format", "pt"},  // what Transformers looks for
                                              {"ration.step", std::to_string(manifest.step)},
                                              {"ration.uuid", manifest.uuid}};
  if (!list.tied.empty()) {
    nlohmann::json tied = nlohmann::json::object();
    for (const TiedTensor& t : list.tied) tied[t.name] = t.tensor;
    metadata["ration.tied"] = text_of(tied);
  }
  return metadata;
}

Outputs make_safetensors(const Manifest& manifest, const TensorList& list,
                         const std::filesystem::path& output, std::uint64_t largest) {
  Outputs made;
  made.targets.resize(list.tensors.size());
  const std::vector<std::size_t> file_of = split(list, largest);
  const std::size_t files = file_of.empty() ? 1 : file_of.back() + 1;
  const auto metadata = metadata_of(manifest, list);
  nlohmann::json weight_map = nlohmann::json::object();
  std::uint64_t total = 0;
  for (std::size_t f = 0; f < files; ++f) {
    std::filesystem::path path = output;
    if (files > 1) {
      path.replace_filename(
          fmt::format("{}-{:05}-of-{:05}.safetensors", output.stem().string(), f + 1, files));
    }
    OutputFile& file = made.files.emplace_back(path);
    std::vector<SafeTensor> header;
    std::vector<std::size_t> members;
    std::uint64_t end = 0;
    // The wider types first, so that each tensor begins at a multiple of its element.
    for (const std::size_t element : {sizeof(float), sizeof(bf16)}) {
      for (std::size_t i = 0; i < list.tensors.size(); ++i) {
        const NamedTensor& tensor = list.tensors[i];
        if (file_of[i] != f || size_of(tensor.dtype) != element) continue;
        SafeTensor& entry = header.emplace_back();
        entry.name = tensor.name;
        entry.shape = tensor.shape;
        entry.dtype = tensor.dtype;
        entry.begin = end;
        entry.end = end += tensor.bytes();
        members.push_back(i);
        if (files > 1) weight_map[tensor.name] = path.filename().string();
      }
    }
    const std::string text = safetensors_header(header, metadata);
    file.create();
    file.file().buffered().write(0, std::as_bytes(std::span(text)));
    for (std::size_t m = 0; m < members.size(); ++m)
      made.targets[members[m]] = {f, text.size() + header[m].begin};
    total += end;
  }
  if (files > 1) {
    made.index =
        text_of({{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}});
  }
  return made;
}

void fill(const std::filesystem::path& folder, const Manifest& manifest, const TensorList& list,
          const Outputs& outputs, const Progress& progress) {
  const std::vector<FlatPlace> places = flats_of(manifest);
  std::map<std::pair<int, int>, std::uint64_t> arrays;
  std::uint64_t total = 0;
  for (const NamedTensor& tensor : list.tensors) {
    const FlatEntry& flat = flat_at(manifest, places[static_cast<std::size_t>(tensor.flat)]);
    const std::uint64_t bytes = static_cast<std::uint64_t>(flat.length) * size_of(tensor.stored);
    if (arrays.emplace(std::pair(tensor.flat, tensor.kind), bytes).second) total += bytes;
  }
  std::vector<const io::BlockFile*> files;
  for (const OutputFile& file : outputs.files) files.push_back(&file.file());
  ScatterWriter writer(std::move(files));
  const auto copy = [&](std::size_t t, const SweepPiece& piece) {
    const NamedTensor& tensor = list.tensors[t];
    const std::size_t element = size_of(tensor.dtype);
    std::int64_t first = std::max(piece.first, tensor.first);
    const std::int64_t end = std::min(piece.first + piece.count, tensor.first + tensor.count);
    while (first < end) {
      const std::span<std::byte> room = writer.claim(
          outputs.targets[t].file,
          outputs.targets[t].offset + static_cast<std::uint64_t>(first - tensor.first) * element,
          static_cast<std::size_t>(end - first) * element, element);
      const std::byte* from =
          piece.data + static_cast<std::size_t>(first - piece.first) * size_of(piece.dtype);
      if (piece.dtype == tensor.dtype) {
        std::memcpy(room.data(), from, room.size());
      } else {
        arithmetic().cast(from, piece.dtype, room.data(), tensor.dtype, room.size() / element);
      }
      first += static_cast<std::int64_t>(room.size() / element);
    }
  };
  std::uint64_t done = 0;
  sweep(
      folder, manifest,
      [&](int flat, int kind) {
        return arrays.contains({flat, kind});
      },
      [&](const SweepPiece& piece) {
        for (std::size_t t = find_tensor(list.tensors, piece.flat, piece.kind, piece.first);
             t < list.tensors.size() && list.tensors[t].flat == piece.flat &&
             list.tensors[t].kind == piece.kind &&
             list.tensors[t].first < piece.first + piece.count;
             ++t) {
          copy(t, piece);
        }
        done += static_cast<std::uint64_t>(piece.count) * size_of(piece.dtype);
        if (progress) progress(done, total);
      });
  writer.finish();
}

}  // namespace

MergeReport merge(const std::filesystem::path& folder, const Manifest& manifest,
                  const std::filesystem::path& output, const MergeOptions& options) {
  const std::filesystem::path kind = output.extension();
  const bool safetensors = kind == ".safetensors";
  if (!safetensors && kind != ".h5" && kind != ".hdf5") {
    throw InvalidArgument(fmt::format(
        "{}: the output's name must end in .safetensors, .h5 or .hdf5", output.string()));
  }
  if (!safetensors && options.largest_file > 0)
    throw InvalidArgument("a largest file size is for safetensors; an HDF5 file is one");
  const TensorList list = list_tensors(manifest, options.tensors);
  Outputs outputs = safetensors ? make_safetensors(manifest, list, output, options.largest_file)
                                : make_hdf5(manifest, list, output);
  fill(folder, manifest, list, outputs, options.progress);
  MergeReport report{.tensors = list.tensors.size()};
  for (const NamedTensor& tensor : list.tensors) report.bytes += tensor.bytes();
  for (OutputFile& file : outputs.files) file.finish();
  for (OutputFile& file : outputs.files) {
    file.commit();
    report.files.push_back(file.path().string());
  }
  if (!outputs.index.empty()) {
    report.files.push_back(output.string() + ".index.json");
    io::replace_file(report.files.back(), outputs.index);
  }
  return report;
}

}  // namespace ration::checkpoint

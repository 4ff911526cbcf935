// Virtual datasets: each tensor is put together from the ranks' slices, as 1-D pieces of their
// datasets that fill boxes of the tensor.

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "checkpoint/merge.hpp"
#include "checkpoint/named_hdf5.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/shard_table.hpp"
#include "checkpoint/sweep.hpp"

namespace ration::checkpoint {
namespace {

// In names of sources "%b" would stand for a block's number.
std::string literal(const std::string& name) {
  std::string result;
  for (const char c : name) result += c == '%' ? std::string("%%") : std::string(1, c);
  return result;
}

class View {
 public:
  View(const std::filesystem::path& folder, const Manifest& manifest,
       const std::filesystem::path& output, const TensorList& list)
      : list_(list) {
    const std::filesystem::path here =
        std::filesystem::absolute(output.has_parent_path() ? output.parent_path() : ".");
    const std::vector<FlatPlace> places = flats_of(manifest);
    Coverage coverage;
    for (std::size_t rank = 0; rank < manifest.shards.size(); ++rank) {
      const ShardReader reader(folder, manifest, static_cast<int>(rank));
      reader.check_rest();
      files_.push_back(literal(std::filesystem::relative(reader.path(), here).string()));
      for (const PlacedSlice& slice : reader.slices()) {
        Array& array = arrays_[{slice.flat, slice.kind}];
        array.slices.emplace(slice.start, Part{rank, slice.length});
        array.dataset = literal(
            dataset_name(manifest, places[static_cast<std::size_t>(slice.flat)], slice.kind));
        coverage.add(slice);
      }
    }
    coverage.check(
        manifest, [](int, int) { return true; }, folder.string());
  }

  [[nodiscard]] hdf5::Object storage_of(std::size_t t) const {
    const NamedTensor& tensor = list_.tensors[t];
    if (tensor.count == 0) return contiguous_storage();
    hdf5::Object how(H5Pcreate(H5P_DATASET_CREATE));
    set_fill(how, tensor.dtype);
    const hdf5::Object space = hdf5::space_of(tensor.shape);
    const Array& array = arrays_.at({tensor.flat, tensor.kind});
    auto slice = std::prev(array.slices.upper_bound(tensor.first));
    for (; slice != array.slices.end() && slice->first < tensor.first + tensor.count; ++slice) {
      const std::int64_t begin = std::max(slice->first, tensor.first);
      const std::int64_t end =
          std::min(slice->first + slice->second.length, tensor.first + tensor.count);
      if (begin >= end) continue;
      const auto length = static_cast<hsize_t>(slice->second.length);
      const hdf5::Object source(H5Screate_simple(1, &length, nullptr));
      auto from = static_cast<hsize_t>(begin - slice->first);
      const auto map = [&](hsize_t elements) {
        H5Sselect_hyperslab(source, H5S_SELECT_SET, &from, nullptr, &elements, nullptr);
        if (H5Pset_virtual(how, space, files_[slice->second.rank].c_str(), array.dataset.c_str(),
                           source) < 0) {
          throw IoError(
              fmt::format("tensor \"{}\" cannot be mapped: {}", tensor.name, hdf5::reason()));
        }
        from += elements;
      };
      if (tensor.shape.empty()) map(1);
      for (const hdf5::Box& box : hdf5::boxes(tensor.shape, begin - tensor.first, end - begin)) {
        hsize_t elements = 1;
        for (const hsize_t n : box.count) elements *= n;
        H5Sselect_hyperslab(space, H5S_SELECT_SET, box.start.data(), nullptr, box.count.data(),
                            nullptr);
        map(elements);
      }
    }
    return how;
  }

 private:
  struct Part {
    std::size_t rank = 0;
    std::int64_t length = 0;
  };
  struct Array {
    std::string dataset;
    std::map<std::int64_t, Part> slices;  ///< by their start
  };

  // HDF5 takes a source that is not there for fill values, without an error.
  static void set_fill(const hdf5::Object& how, DType dtype) {
    const std::uint32_t wide = 0x7fc00000;
    const std::uint16_t half = dtype == DType::bf16 ? 0x7fc0 : 0x7e00;
    const void* nan = dtype == DType::f32 ? static_cast<const void*>(&wide) : &half;
    H5Pset_fill_value(how, hdf5::file_type(dtype), nan);
  }

  const TensorList& list_;
  std::vector<std::string> files_;  ///< by rank, seen from the view
  std::map<std::pair<int, int>, Array> arrays_;
};

}  // namespace

MergeReport merge_view(const std::filesystem::path& folder, const Manifest& manifest,
                       const std::filesystem::path& output, const TensorOptions& options) {
  const TensorList list = list_tensors(manifest, options);
  MergeReport report{.files = {output.string()}, .tensors = list.tensors.size()};
  for (const NamedTensor& tensor : list.tensors) {
    if (tensor.dtype != tensor.stored) {
      throw InvalidArgument(
          fmt::format("a view shows values as they are stored: tensor \"{}\" is {}, not {}",
                      tensor.name, name_of(tensor.stored), name_of(tensor.dtype)));
    }
    report.bytes += tensor.bytes();
  }
  OutputFile file(output);
  const View view(folder, manifest, output, list);
  create_named_hdf5(file.temporary(), manifest, list,
                    [&](std::size_t tensor) { return view.storage_of(tensor); });
  file.open();
  file.finish();
  file.commit();
  return report;
}

}  // namespace ration::checkpoint

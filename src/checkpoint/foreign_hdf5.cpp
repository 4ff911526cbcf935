// HDF5 files of others: every dataset is a tensor, named by its path. HDF5 itself would follow
// links and storage into other files and load filters as plug-ins; none of that is let happen.

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "checkpoint/foreign.hpp"
#include "checkpoint/hdf5_object.hpp"

namespace ration::checkpoint {
namespace {

constexpr std::size_t kMostTensors = 1 << 20;
constexpr std::size_t kDeepest = 64;
constexpr hsize_t kLargestChunk = hsize_t{64} << 20;

class Hdf5File final : public ForeignFile {
 public:
  explicit Hdf5File(const std::filesystem::path& path) : where_(path.string()) {
    const std::lock_guard lock(hdf5::mutex());
    const hdf5::Quiet quiet;
    const hdf5::Object how = hdf5::access();
    file_ = hdf5::Object(H5Fopen(path.c_str(), H5F_ACC_RDONLY, how));
    if (file_ < 0) refuse("", fmt::format("cannot be opened as HDF5: {}", hdf5::reason()));
    walk(hdf5::Object(H5Gopen2(file_, "/", H5P_DEFAULT)), "", 0);
    settle_names(tensors_, where_);
  }

  ~Hdf5File() override {
    const std::lock_guard lock(hdf5::mutex());
    file_.close();
  }
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  void read(std::size_t tensor, std::int64_t first, std::int64_t count,
            std::byte* to) const override {
    const std::lock_guard lock(hdf5::mutex());
    const hdf5::Quiet quiet;
    const ForeignTensor& wanted = tensors_[tensor];
    const hdf5::Object set(H5Dopen2(file_, wanted.name.c_str(), H5P_DEFAULT));
    const hdf5::Handle type = hdf5::file_type(wanted.dtype);
    const hdf5::Object space(H5Dget_space(set));
    const auto get = [&](hsize_t elements) {
      const hdf5::Object memory(H5Screate_simple(1, &elements, nullptr));
      if (H5Dread(set, type, memory, space, H5P_DEFAULT, to) < 0)
        refuse(wanted.name, hdf5::reason());
      to += elements * size_of(wanted.dtype);
    };
    if (wanted.shape.empty() && count == 1) get(1);
    for (const hdf5::Box& box : hdf5::boxes(wanted.shape, first, count)) {
      hsize_t elements = 1;
      for (const hsize_t n : box.count) elements *= n;
      if (H5Sselect_hyperslab(space, H5S_SELECT_SET, box.start.data(), nullptr, box.count.data(),
                              nullptr) < 0) {
        refuse(wanted.name, hdf5::reason());
      }
      get(elements);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    if (name.empty()) throw CorruptCheckpoint(fmt::format("{}: {}", where_, why));
    throw CorruptCheckpoint(fmt::format("{}: \"{}\": {}", where_, name, why));
  }

  void walk(const hdf5::Object& group, const std::string& prefix, std::size_t depth) {
    if (group < 0) refuse(prefix, hdf5::reason());
    if (depth > kDeepest) refuse(prefix, "groups are nested too deep");
    enter(group, prefix);
    std::vector<std::pair<std::string, H5L_type_t>> links;
    const herr_t listed = H5Literate(
        group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr,
        [](hid_t, const char* name, const H5L_info_t* info, void* to) -> herr_t {
          auto& found = *static_cast<decltype(links)*>(to);
          if (found.size() == kMostTensors) return -1;
          found.emplace_back(name, info->type);
          return 0;
        },
        &links);
    if (listed < 0) refuse(prefix, fmt::format("cannot be listed: {}", hdf5::reason()));
    for (const auto& [name, type] : links) {
      const std::string path = prefix + name;
      if (type == H5L_TYPE_SOFT)
        refuse(path, "is a soft link; only datasets and hard links are taken");
      if (type != H5L_TYPE_HARD) refuse(path, "is a link to another file; none is followed");
      const hdf5::Object object(H5Oopen(group, name.c_str(), H5P_DEFAULT));
      if (object < 0) refuse(path, hdf5::reason());
      const H5I_type_t what = H5Iget_type(object);
      if (what == H5I_GROUP) {
        walk(object, path + "/", depth + 1);
      } else if (what == H5I_DATASET) {
        add(object, path);
      }  // named types stand for nothing by themselves
    }
  }

  // A group may be reached by one way only: hard links can form circles.
  void enter(hid_t group, const std::string& path) {
    H5O_info_t info{};
    if (H5Oget_info2(group, &info, H5O_INFO_BASIC) < 0) refuse(path, hdf5::reason());
    if (!groups_.insert(info.addr).second) refuse(path, "is a group that has a second name");
  }

  void add(hid_t set, const std::string& path) {
    if (tensors_.size() == kMostTensors) refuse("", "holds too many datasets");
    ForeignTensor tensor{.name = path};
    check_storage(hdf5::Object(H5Dget_create_plist(set)), set, path);
    const hdf5::Object type(H5Dget_type(set));
    const auto dtype = hdf5::dtype_of(type);
    if (!dtype) {
      throw InvalidArgument(
          fmt::format("{}: dataset \"{}\" is not of little-endian f32, bf16 or f16", where_, path));
    }
    tensor.dtype = *dtype;
    const hdf5::Object space(H5Dget_space(set));
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank < 0 || H5Sget_simple_extent_type(space) == H5S_NULL) refuse(path, "has no shape");
    std::vector<hsize_t> dimensions(static_cast<std::size_t>(rank));
    if (rank > 0) H5Sget_simple_extent_dims(space, dimensions.data(), nullptr);
    for (const hsize_t n : dimensions) {
      if (n > static_cast<hsize_t>(INT64_MAX)) refuse(path, "has too large a shape");
      tensor.shape.push_back(static_cast<std::int64_t>(n));
    }
    tensor.count = count_of(tensor.shape);
    if (tensor.count < 0) refuse(path, "has too large a shape");
    if (tensor.count > 0 && !is_whole(set, space, dimensions))
      refuse(path, "is not wholly in the file");
    tensors_.push_back(std::move(tensor));
  }

  // Elements that were never written would be read as fill values, however many are claimed.
  static bool is_whole(hid_t set, hid_t space, const std::vector<hsize_t>& dimensions) {
    const hdf5::Object how(H5Dget_create_plist(set));
    if (H5Pget_layout(how) != H5D_CHUNKED) {
      H5D_space_status_t status{};
      return H5Dget_space_status(set, &status) >= 0 && status == H5D_SPACE_STATUS_ALLOCATED;
    }
    // Of packed chunks the status is a guess by their bytes.
    std::vector<hsize_t> chunk(dimensions.size());
    if (H5Pget_chunk(how, static_cast<int>(chunk.size()), chunk.data()) < 0) return false;
    hsize_t wanted = 1;
    for (std::size_t d = 0; d < chunk.size(); ++d)
      wanted *= dimensions[d] / chunk[d] + (dimensions[d] % chunk[d] != 0 ? 1 : 0);
    hsize_t chunks = 0;
    return H5Dget_num_chunks(set, space, &chunks) >= 0 && chunks == wanted;
  }

  void check_storage(const hdf5::Object& how, hid_t set, const std::string& path) const {
    const H5D_layout_t layout = H5Pget_layout(how);
    if (layout == H5D_VIRTUAL) refuse(path, "is virtual, its data in other files; none is opened");
    if (layout < 0 || set < 0) refuse(path, hdf5::reason());
    if (layout == H5D_CONTIGUOUS && H5Pget_external_count(how) != 0)
      refuse(path, "has its data in another file; none is opened");
    const int filters = H5Pget_nfilters(how);
    for (int i = 0; i < filters; ++i) {
      unsigned flags = 0;
      std::size_t values = 0;
      unsigned settings = 0;
      const H5Z_filter_t filter = H5Pget_filter2(how, static_cast<unsigned>(i), &flags, &values,
                                                 nullptr, 0, nullptr, &settings);
      if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE &&
          filter != H5Z_FILTER_FLETCHER32) {
        refuse(path, fmt::format("is packed by filter {}; only deflate, shuffle and fletcher32 are "
                                 "taken",
                                 static_cast<int>(filter)));
      }
    }
    if (layout == H5D_CHUNKED) {
      std::vector<hsize_t> chunk(H5S_MAX_RANK);
      const int rank = H5Pget_chunk(how, H5S_MAX_RANK, chunk.data());
      hsize_t bytes = sizeof(float);  // of the widest type that is taken
      for (int d = 0; d < rank; ++d) {
        const hsize_t n = std::max<hsize_t>(chunk[static_cast<std::size_t>(d)], 1);
        if (bytes > kLargestChunk / n) refuse(path, "has chunks that are too large");
        bytes *= n;
      }
    }
  }

  std::string where_;
  hdf5::Object file_;
  std::set<haddr_t> groups_;
};

}  // namespace

std::unique_ptr<ForeignFile> open_hdf5(const std::filesystem::path& path) {
  return std::make_unique<Hdf5File>(path);
}

}  // namespace ration::checkpoint

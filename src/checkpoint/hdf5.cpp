#include "checkpoint/hdf5.hpp"

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration::checkpoint::hdf5 {
namespace {

// Where HDF5 is safe for threads, each thread prints errors until it is told not to.
void silence() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

herr_t keep_innermost(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

void require(herr_t result, std::string_view what) {
  if (result < 0) fail(what);
}

Handle property_list(hid_t kind) {
  return {H5Pcreate(kind), H5Pclose, "HDF5 property list"};
}

}  // namespace

std::mutex& mutex() {
  static std::mutex mutex;
  return mutex;
}

void fail(std::string_view what) {
  std::string reason = "an error of HDF5";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &reason);
  throw IoError(fmt::format("{}: {}", what, reason));
}

Handle::Handle(hid_t id, Close close, std::string_view what) : id_(id), close_(close) {
  if (id < 0) fail(what);
}

Handle file_type(DType type) {
  silence();
  const auto copy = [](hid_t native) { return Handle(H5Tcopy(native), H5Tclose, "HDF5 type"); };
  switch (type) {
    case DType::f32:
      return copy(H5T_IEEE_F32LE);
    case DType::f64:
      return copy(H5T_IEEE_F64LE);
    case DType::i64:
      return copy(H5T_STD_I64LE);
    case DType::u8:
      return copy(H5T_STD_U8LE);
    case DType::f16:
    case DType::bf16:
      break;
  }
  Handle half = copy(H5T_IEEE_F32LE);
  const bool brain = type == DType::bf16;
  const unsigned exponent = brain ? 8 : 5;
  const unsigned mantissa = 15 - exponent;
  require(H5Tset_fields(half, 15, mantissa, exponent, 0, mantissa), "HDF5 16-bit type");
  require(H5Tset_precision(half, 16), "HDF5 16-bit type");
  require(H5Tset_size(half, 2), "HDF5 16-bit type");
  require(H5Tset_ebias(half, brain ? 127 : 15), "HDF5 16-bit type");
  return half;
}

NewFile::NewFile(const std::filesystem::path& path)
    : path_(path.string()), target_(path, io::Access::write_new) {
  silence();
  const Handle access = property_list(H5P_FILE_ACCESS);
  require(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), path_);
  require(H5Pset_fclose_degree(access, H5F_CLOSE_SEMI), path_);
  require(H5Pset_alignment(access, 1, 4096), path_);
#if H5_VERSION_GE(1, 10, 7)
  require(H5Pset_file_locking(access, 0, 1), path_);
#endif
  require(memory_.choose_for(access), path_);
  file_ = Handle(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, path_);
}

std::uint64_t NewFile::add_dataset(const std::string& name, hid_t type,
                                   const std::vector<hsize_t>& size) {
  const std::string what = path_ + ": dataset " + name;
  const Handle links = property_list(H5P_LINK_CREATE);
  require(H5Pset_create_intermediate_group(links, 1), what);
  const Handle creation = property_list(H5P_DATASET_CREATE);
  require(H5Pset_layout(creation, H5D_CONTIGUOUS), what);
  require(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), what);
  require(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), what);
  const Handle space(size.empty()
                         ? H5Screate(H5S_SCALAR)
                         : H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr),
                     H5Sclose, what);
  const Handle set(H5Dcreate2(file_, name.c_str(), type, space, links, creation, H5P_DEFAULT),
                   H5Dclose, what);
  const haddr_t offset = H5Dget_offset(set);
  if (offset == HADDR_UNDEF) fail(what);
  return offset;
}

Handle NewFile::open_object(const std::string& object) const {
  return {H5Oopen(file_, object.empty() ? "/" : object.c_str(), H5P_DEFAULT), H5Oclose,
          path_ + ": " + object};
}

void NewFile::add_text(const std::string& object, const char* name, std::string_view value) {
  const std::string what = path_ + ": attribute " + name;
  const Handle owner = open_object(object);
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, what);
  require(H5Tset_size(type, std::max<std::size_t>(value.size(), 1)), what);
  require(H5Tset_strpad(type, H5T_STR_NULLPAD), what);
  require(H5Tset_cset(type, H5T_CSET_UTF8), what);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, what);
  const Handle attribute(H5Acreate2(owner, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                         what);
  const std::string bytes = value.empty() ? std::string(1, '\0') : std::string(value);
  require(H5Awrite(attribute, type, bytes.data()), what);
}

void NewFile::add_number(const std::string& object, const char* name, std::int64_t value) {
  const std::string what = path_ + ": attribute " + name;
  const Handle owner = open_object(object);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, what);
  const Handle attribute(H5Acreate2(owner, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, what);
  require(H5Awrite(attribute, H5T_NATIVE_INT64, &value), what);
}

void NewFile::add_link(const std::string& name, const std::string& existing) {
  const Handle links = property_list(H5P_LINK_CREATE);
  require(H5Pset_create_intermediate_group(links, 1), path_);
  require(H5Lcreate_hard(file_, existing.c_str(), file_, name.c_str(), links, H5P_DEFAULT),
          path_ + ": link " + name);
}

void NewFile::close() {
  // A handle left open would keep the file open, and H5Fclose would say success.
  if (H5Fget_obj_count(file_, H5F_OBJ_ALL) != 1) throw IoError(path_ + ": an HDF5 object is open");
  if (H5Fflush(file_, H5F_SCOPE_LOCAL) < 0 || file_.close() < 0) fail(path_);
  memory_.write_to(target_);
  target_.close();
}

std::string escaped(std::string_view name) {
  if (name == ".") return "%2E";
  std::string text;
  for (const char c : name) {
    if (c == '/') {
      text += "%2F";
    } else if (c == '%') {
      text += "%25";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace ration::checkpoint::hdf5

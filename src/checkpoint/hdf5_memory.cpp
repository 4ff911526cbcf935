#include "checkpoint/hdf5_memory.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

namespace ration::checkpoint::hdf5 {
namespace {

// HDF5 hands out a pointer to the first member.
struct Open {
  H5FD_t base;
  MemoryFile* file;
  haddr_t end;  ///< of what HDF5 has given places to
};
static_assert(std::is_standard_layout_v<Open>);

Open* of(H5FD_t* file) {
  return reinterpret_cast<Open*>(file);
}
const Open* of(const H5FD_t* file) {
  return reinterpret_cast<const Open*>(file);
}

// What an access list carries.
struct Chosen {
  MemoryFile* file;
};

H5FD_t* open(const char*, unsigned, hid_t access, haddr_t) {
  const auto* chosen = static_cast<const Chosen*>(H5Pget_driver_info(access));
  if (chosen == nullptr) return nullptr;
  auto opened = std::make_unique<Open>(Open{.base = {}, .file = chosen->file, .end = 0});
  return &opened.release()->base;
}

herr_t close(H5FD_t* file) {
  delete of(file);
  return 0;
}

// As HDF5's own driver for files says, so that objects get the same places.
herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
#ifdef H5FD_FEAT_DEFAULT_VFD_COMPATIBLE
  *flags |= H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
#endif
  return 0;
}

haddr_t get_end(const H5FD_t* file, H5FD_mem_t) {
  return of(file)->end;
}

herr_t set_end(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  of(file)->end = end;
  return 0;
}

haddr_t get_size(const H5FD_t* file, H5FD_mem_t) {
  return of(file)->file->size();
}

herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, void* to) {
  of(file)->file->read(offset, size, static_cast<std::byte*>(to));
  return 0;
}

herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, const void* from) {
  try {
    of(file)->file->write(offset, size, static_cast<const std::byte*>(from));
    return 0;
  } catch (...) {  // no memory
    return -1;
  }
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  of(file)->file->resize(of(file)->end);
  return 0;
}

hid_t driver() {
  static const hid_t id = [] {
    H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
    driver.version = H5FD_CLASS_VERSION;
    driver.value = static_cast<H5FD_class_value_t>(512);  // the first of those for private use
#endif
    driver.name = "ration-memory";
    driver.maxaddr = std::numeric_limits<std::int64_t>::max();
    driver.fc_degree = H5F_CLOSE_WEAK;
    driver.fapl_size = sizeof(Chosen);
    driver.open = open;
    driver.close = close;
    driver.query = query;
    driver.get_eoa = get_end;
    driver.set_eoa = set_end;
    driver.get_eof = get_size;
    driver.read = read;
    driver.write = write;
    driver.truncate = truncate;
    const H5FD_mem_t kinds[] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(kinds), std::end(kinds), driver.fl_map);
    return H5FDregister(&driver);
  }();
  return id;
}

}  // namespace

herr_t MemoryFile::choose_for(hid_t access) {
  const Chosen chosen{this};
  return H5Pset_driver(access, driver(), &chosen);
}

void MemoryFile::read(std::uint64_t offset, std::size_t size, std::byte* to) const {
  while (size > 0) {
    const std::size_t in_page = offset % kPage;
    const std::size_t n = std::min(size, kPage - in_page);
    const auto page = pages_.find(offset / kPage);
    if (page == pages_.end()) {
      std::memset(to, 0, n);
    } else {
      std::memcpy(to, page->second.data() + in_page, n);
    }
    offset += n;
    to += n;
    size -= n;
  }
}

void MemoryFile::write(std::uint64_t offset, std::size_t size, const std::byte* from) {
  while (size > 0) {
    const std::size_t in_page = offset % kPage;
    const std::size_t n = std::min(size, kPage - in_page);
    std::memcpy(pages_[offset / kPage].data() + in_page, from, n);
    offset += n;
    from += n;
    size -= n;
  }
  size_ = std::max(size_, offset);
}

void MemoryFile::write_to(const io::File& file) const {
  file.resize(size_);
  for (const auto& [number, bytes] : pages_) {
    const std::uint64_t begin = number * kPage;
    if (begin >= size_) break;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kPage, size_ - begin));
    file.write(begin, std::span(bytes).first(n));
  }
}

}  // namespace ration::checkpoint::hdf5

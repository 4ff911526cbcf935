#include "checkpoint/hdf5_object.hpp"

#include <algorithm>

namespace ration::checkpoint::hdf5 {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t from) {
  std::int64_t count = 1;
  for (std::size_t i = from; i < shape.size(); ++i) count *= shape[i];
  return count;
}

// Of the part of the array below `index`, which fixes the first dimensions.
void add_boxes(const std::vector<std::int64_t>& shape, std::vector<hsize_t>& index,
               std::int64_t first, std::int64_t count, std::vector<Box>& to) {
  if (count == 0) return;
  const std::size_t d = index.size();
  const auto add = [&](std::int64_t row, std::int64_t rows) {
    Box& box = to.emplace_back();
    box.start = index;
    box.count.assign(d, 1);
    box.start.push_back(static_cast<hsize_t>(row));
    box.count.push_back(static_cast<hsize_t>(rows));
    for (std::size_t i = d + 1; i < shape.size(); ++i) {
      box.start.push_back(0);
      box.count.push_back(static_cast<hsize_t>(shape[i]));
    }
  };
  const std::int64_t row = product(shape, d + 1);
  const auto add_part_of_row = [&](std::int64_t n) {
    index.push_back(static_cast<hsize_t>(first / row));
    add_boxes(shape, index, first % row, n, to);
    index.pop_back();
    first += n;
    count -= n;
  };
  if (first % row != 0) add_part_of_row(std::min(count, row - first % row));
  if (count >= row) {
    add(first / row, count / row);
    first += count / row * row;
    count %= row;
  }
  if (count > 0) add_part_of_row(count);
}

}  // namespace

std::string reason() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* error, void* to) -> herr_t {
        if (n == 0 && error->desc) *static_cast<std::string*>(to) = error->desc;
        return 0;
      },
      &text);
  return text.empty() ? "HDF5 gives no reason" : text;
}

std::optional<DType> dtype_of(hid_t type) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (H5Tequal(type, file_type(dtype)) > 0) return dtype;
  }
  return std::nullopt;
}

Object access() {
  Object list(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_file_locking(list, false, true);
  H5Pset_fclose_degree(list, H5F_CLOSE_SEMI);
  return list;
}

std::vector<Box> boxes(const std::vector<std::int64_t>& shape, std::int64_t first,
                       std::int64_t count) {
  std::vector<Box> result;
  std::vector<hsize_t> index;
  if (!shape.empty()) add_boxes(shape, index, first, count, result);
  return result;
}

Object space_of(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return Object(H5Screate(H5S_SCALAR));
  const std::vector<hsize_t> dimensions(shape.begin(), shape.end());
  return Object(H5Screate_simple(static_cast<int>(shape.size()), dimensions.data(), nullptr));
}

}  // namespace ration::checkpoint::hdf5

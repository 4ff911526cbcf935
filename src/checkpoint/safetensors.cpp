#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "io/file.hpp"

namespace ration::checkpoint {
namespace {

class SafetensorsFile final : public ForeignFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path) : file_(path, io::Access::read) {
    const std::uint64_t size = file_.size();
    std::array<std::byte, 8> begin{};
    if (size < begin.size()) {
      throw CorruptCheckpoint(
          fmt::format("{}: has {} bytes, too few for safetensors", path.string(), size));
    }
    file_.read(0, begin);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < begin.size(); ++i) length |= std::uint64_t(begin[i]) << (8 * i);
    if (length > kSafetensorsHeader || length > size - begin.size()) {
      throw CorruptCheckpoint(fmt::format("{}: claims a header of {} bytes, the file has {}",
                                          path.string(), length, size));
    }
    std::string text(length, '\0');
    file_.read(begin.size(), std::as_writable_bytes(std::span(text)));
    data_ = begin.size() + length;
    std::vector<SafeTensor> found = parse_safetensors_header(text, size - data_, path.string());
    std::sort(found.begin(), found.end(),
              [](const SafeTensor& a, const SafeTensor& b) { return a.name < b.name; });
    for (SafeTensor& tensor : found) {
      begins_.push_back(tensor.begin);
      tensors_.push_back(std::move(tensor));
    }
    settle_names(tensors_, path.string());
  }

  void read(std::size_t tensor, std::int64_t first, std::int64_t count,
            std::byte* to) const override {
    const std::size_t element = size_of(tensors_[tensor].dtype);
    file_.read(data_ + begins_[tensor] + static_cast<std::uint64_t>(first) * element,
               std::span(to, static_cast<std::size_t>(count) * element));
  }

 private:
  io::File file_;
  std::uint64_t data_ = 0;
  std::vector<std::uint64_t> begins_;
};

}  // namespace

std::unique_ptr<ForeignFile> open_safetensors(const std::filesystem::path& path) {
  return std::make_unique<SafetensorsFile>(path);
}

}  // namespace ration::checkpoint

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "checkpoint/safetensors.hpp"

namespace ration::checkpoint {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDimensions = 32;

std::string_view safe_name(DType dtype) {
  if (dtype == DType::f32) return "F32";
  return dtype == DType::bf16 ? "BF16" : "F16";
}

std::string json_of(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw InvalidArgument("safetensors holds only UTF-8 names, and one is not; merge to HDF5");
  }
}

// Walks the text without building it: {"name": {"dtype": "F32", "shape": [..], "data_offsets":
// [..]}} and nothing else, but for "__metadata__" with texts.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}
  std::vector<SafeTensor> tensors;

  [[noreturn]] void refuse(const std::string& why) const {
    throw CorruptCheckpoint(fmt::format("{}: {}", where_, why));
  }

  bool null() override { refuse_value(); }
  bool boolean(bool) override { refuse_value(); }
  bool number_integer(number_integer_t) override { refuse_value(); }  // negative ones
  bool number_float(number_float_t, const string_t&) override { refuse_value(); }
  bool binary(binary_t&) override { refuse_value(); }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) refuse_value();
    if (numbers_.size() == kMostDimensions)
      refuse(fmt::format("\"{}\" has too many numbers", name_));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      refuse(fmt::format("\"{}\" has a number that is too large", name_));
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::tensor || field_ != "dtype") refuse_value();
    type_ = value;
    return true;
  }
  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = name_ == "__metadata__" ? Place::metadata : Place::tensor;
      fields_.clear();
    } else {
      refuse_value();
    }
    return true;
  }
  bool key(string_t& value) override {
    auto& known = place_ == Place::top ? names_ : fields_;
    if (!known.insert(value).second) refuse(fmt::format("\"{}\" is there twice", value));
    if (place_ == Place::top) {
      name_ = value;
    } else if (place_ == Place::tensor) {
      if (value != "dtype" && value != "shape" && value != "data_offsets")
        refuse(fmt::format("\"{}\" has an unknown field \"{}\"", name_, value));
      field_ = value;
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor) add();
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || field_ == "dtype") refuse_value();
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    (place_ == Place::shape ? shape_ : offsets_) = numbers_;
    place_ = Place::tensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    refuse(fmt::format("the header is no JSON at its byte {}", position));
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] void refuse_value() const {
    refuse(fmt::format("the header holds a value where none belongs, at \"{}\"", name_));
  }

  void add() {
    if (fields_.size() != 3) refuse(fmt::format("\"{}\" lacks one of its three fields", name_));
    if (offsets_.size() != 2) refuse(fmt::format("\"{}\" has not two offsets", name_));
    SafeTensor tensor;
    tensor.name = name_;
    tensor.shape = shape_;
    bool known = false;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (safe_name(dtype) != type_) continue;
      tensor.dtype = dtype;
      known = true;
    }
    if (!known) {
      throw InvalidArgument(
          fmt::format("{}: tensor \"{}\" is of type {}; only F32, BF16 and F16 are taken", where_,
                      name_, type_));
    }
    tensor.count = count_of(shape_);
    if (tensor.count < 0) refuse(fmt::format("\"{}\" has too large a shape", name_));
    tensor.begin = static_cast<std::uint64_t>(offsets_[0]);
    tensor.end = static_cast<std::uint64_t>(offsets_[1]);
    const std::uint64_t bytes = static_cast<std::uint64_t>(tensor.count) * size_of(tensor.dtype);
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
      refuse(
          fmt::format("\"{}\" of shape [{}] and type {} needs {} bytes, its offsets are {} and {}",
                      name_, fmt::join(shape_, ", "), type_, bytes, tensor.begin, tensor.end));
    }
    tensors.push_back(std::move(tensor));
  }

  const std::string& where_;
  Place place_ = Place::outside;
  std::set<std::string, std::less<>> names_, fields_;
  std::string name_, field_, type_;
  std::vector<std::int64_t> numbers_, shape_, offsets_;
};

}  // namespace

std::string safetensors_header(std::span<const SafeTensor> tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto separate = [&] {
    if (text.size() > 1) text += ',';
  };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    bool first = true;
    for (const auto& [name, value] : metadata) {
      if (!first) text += ',';
      first = false;
      text += fmt::format("{}:{}", json_of(name), json_of(value));
    }
    text += '}';
  }
  for (const SafeTensor& tensor : tensors) {
    separate();
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json_of(tensor.name), safe_name(tensor.dtype), fmt::join(tensor.shape, ","),
                        tensor.begin, tensor.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kSafetensorsHeader) {
    throw InvalidArgument(fmt::format(
        "a safetensors header of {} bytes would be needed, at most {} are written; merge to HDF5",
        text.size(), kSafetensorsHeader));
  }
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

std::vector<SafeTensor> parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                                 const std::string& where) {
  HeaderReader reader(where);
  if (text.empty() || text.front() != '{') reader.refuse("the header does not begin with \"{\"");
  json::sax_parse(text.begin(), text.end(), &reader);
  std::vector<SafeTensor> tensors = std::move(reader.tensors);
  std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t end = 0;
  for (const SafeTensor& tensor : tensors) {
    if (tensor.begin != end) {
      reader.refuse(
          fmt::format("\"{}\" begins at byte {} of the data, the one before it ends at {}",
                      tensor.name, tensor.begin, end));
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    reader.refuse(
        fmt::format("the tensors need {} bytes of data, the file has {}", end, data_bytes));
  }
  return tensors;
}

}  // namespace ration::checkpoint

#include "text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace chargpt {

namespace {

void append_file(const std::string& path, std::vector<char>& bytes) {
  const auto fail = [&] {
    throw std::runtime_error("--text: cannot read " + path + ": " + std::strerror(errno));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) fail();
  std::array<char, 65536> piece;
  while (const std::size_t size = std::fread(piece.data(), 1, piece.size(), file.get())) {
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(size));
  }
  if (std::ferror(file.get())) fail();  // a folder opens, but does not read
}

}  // namespace

std::vector<std::string> licence_texts() {
  std::vector<std::string> files;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator("/usr/share/common-licenses", none)) {
    if (entry.symlink_status().type() == std::filesystem::file_type::regular) {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

Text read_text(std::span<const std::string> files) {
  std::vector<char> bytes;
  for (const std::string& file : files) append_file(file, bytes);
  return tokenize(bytes);
}

Text tokenize(std::span<const char> bytes) {
  std::array<bool, 256> seen{};
  for (const char byte : bytes) seen[static_cast<std::uint8_t>(byte)] = true;
  Text text;
  std::array<std::uint8_t, 256> token{};
  for (std::size_t byte = 0; byte < seen.size(); ++byte) {
    if (!seen[byte]) continue;
    token[byte] = static_cast<std::uint8_t>(text.vocabulary.size());
    text.vocabulary.push_back(static_cast<std::uint8_t>(byte));
  }
  text.tokens.reserve(bytes.size());
  for (const char byte : bytes) text.tokens.push_back(token[static_cast<std::uint8_t>(byte)]);
  return text;
}

}  // namespace chargpt

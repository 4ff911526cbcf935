#pragma once
// Bytes as JSON text (RFC 4648, section 4).

#include <optional>
#include <string>
#include <string_view>

namespace ration::checkpoint {

std::string to_base64(std::string_view bytes);
/// Nothing for a text that is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ration::checkpoint

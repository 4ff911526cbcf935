#include <ration/error.hpp>

#include "comm/gloo/gloo.hpp"

namespace ration {

std::shared_ptr<Messages> make_gloo(Control&, const std::string&) {
  throw InvalidArgument(
      "built without gloo; configure with -DRATION_GLOO=ON (Debian: libgloo-dev)");
}

}  // namespace ration

#include "offload/block_device.hpp"

namespace ration::offload {

std::unique_ptr<BlockDevice> make_uring(SwapFiles&, std::size_t) {
  return nullptr;
}

}  // namespace ration::offload

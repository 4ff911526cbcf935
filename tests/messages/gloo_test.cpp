// gloo with ranks as threads: what holds for every transport, and how ranks find each other.

#include "messages/gloo_ranks.hpp"
#include "messages/transport_tests.hpp"

namespace ration::test {
namespace {

struct Gloo {
  static constexpr int kRanks = 4;
  static void run(const std::function<void(Messages&, int rank)>& body) { with_gloo(kRanks, body); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Gloo, Transports, Gloo);

}  // namespace
}  // namespace ration::test

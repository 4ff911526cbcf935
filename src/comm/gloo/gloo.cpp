#include "comm/gloo/gloo.hpp"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/gloo/mesh.hpp"
#include "comm/local_address.hpp"
#include "core/record.hpp"
#include "core/timeout.hpp"

namespace ration {
namespace {

constexpr std::string_view kChannel = "gloo";
using Token = std::uint64_t;  // of the job: a stranger who connects does not know it

class GlooMessages final : public Messages {
 public:
  explicit GlooMessages(std::shared_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

  [[nodiscard]] std::string_view name() const override { return "gloo"; }

  std::unique_ptr<Message> send(int peer, std::uint32_t tag, const void* data,
                                std::size_t bytes) override {
    return Mesh::send(mesh_, peer, slot(tag, bytes), data, bytes);
  }
  std::unique_ptr<Message> receive(int peer, std::uint32_t tag, void* data,
                                   std::size_t bytes) override {
    return Mesh::receive(mesh_, peer, slot(tag, bytes), data, bytes);
  }

 private:
  // The size is part of what is matched: gloo ends the process of a receive that is too small, so
  // ranks that do not agree must wait for their deadline instead.
  static std::uint64_t slot(std::uint32_t tag, std::size_t bytes) {
    static_assert(Messages::kTags == 1U << 20);
    return static_cast<std::uint64_t>(bytes) << 20 | tag;
  }

  const std::shared_ptr<Mesh> mesh_;
};

/// What all ranks must know before they can listen.
struct Network {
  Token token = 0;
  bool one_host = false;
  std::string address;  // rank 0's
};

struct Wish {
  std::string interface;  // named by someone: keep to it
  std::string host;
};

Wish wish_of(const std::string& interface_or_host) {
  const char* named = std::getenv("RATION_INTERFACE");
  if (named && *named) return {.interface = named, .host = {}};
  if (is_interface(interface_or_host)) return {.interface = interface_or_host, .host = {}};
  return {.interface = {}, .host = interface_or_host};
}

std::string address_of(const Wish& wish, const Network& network) {
  if (wish.interface.empty() && network.one_host) return "127.0.0.1";
  std::string address = !wish.interface.empty()
                            ? address_of_interface(wish.interface)
                            : address_towards(wish.host.empty() ? network.address : wish.host);
  if (is_loopback(address) && !network.one_host) {
    throw InvalidArgument(
        "the ranks are on several hosts, but this one would be reached over loopback; name the "
        "network interface that joins them by RATION_INTERFACE");
  }
  return address;
}

/// Where others may look for the way to this rank.
std::string suggested_address(const Wish& wish) {
  try {
    if (!wish.interface.empty()) return address_of_interface(wish.interface);
    if (!wish.host.empty()) return address_towards(wish.host);
  } catch (const InvalidArgument&) {  // said to all when it is asked for again
  }
  return default_address();
}

Network agree_on_network(Control& control, const Wish& wish) {
  Bytes record;
  RecordWriter writer(record);
  std::random_device random;
  writer.put(Token{random()} << 32 | random());
  writer.put_text(network_id());
  writer.put_text(suggested_address(wish));
  Bytes result;
  const auto combine = [](std::span<const Bytes> records, Bytes& combined) {
    bool one_host = true;
    Network network;
    std::string first;
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
      RecordReader reader(records[rank]);
      const auto token = reader.get<Token>();
      const std::string id = reader.get_text();
      const std::string address = reader.get_text();
      if (rank == 0) {
        network = {.token = token, .one_host = true, .address = address};
        first = id;
      }
      one_host = one_host && id == first;
    }
    RecordWriter combined_writer(combined);
    combined_writer.put(network.token);
    combined_writer.put(one_host);
    combined_writer.put_text(network.address);
  };
  control.fold(kChannel, record, combine, result, "gloo: hosts");
  RecordReader reader(result);
  Network network;
  network.token = reader.get<Token>();
  network.one_host = reader.get<bool>();
  network.address = reader.get_text();
  return network;
}

/// Where a rank listens for each of its peers, or why it cannot.
struct Listening {
  std::string error;
  std::string address;
  std::vector<std::uint16_t> ports;
};

std::vector<Listening> exchange(Control& control, const Listening& own) {
  Bytes record;
  RecordWriter writer(record);
  writer.put_text(own.error);
  writer.put_text(own.address);
  writer.put_list(own.ports);
  Bytes result;
  control.fold(kChannel, record, concatenate, result, "gloo: addresses");
  RecordReader reader(result);
  std::vector<Listening> all(static_cast<std::size_t>(control.size()));
  for (Listening& one : all) {
    one.error = reader.get_text();
    one.address = reader.get_text();
    reader.get_list(one.ports);
  }
  return all;
}

/// The first rank's failure, where any failed.
std::string first_failure(Control& control, const std::string& own) {
  Bytes record;
  RecordWriter(record).put_text(own);
  Bytes result;
  const auto combine = [](std::span<const Bytes> records, Bytes& combined) {
    std::string first;
    for (std::size_t rank = 0; rank < records.size() && first.empty(); ++rank) {
      const std::string text = RecordReader(records[rank]).get_text();
      if (!text.empty()) first = fmt::format("rank {}: {}", rank, text);
    }
    RecordWriter(combined).put_text(first);
  };
  control.fold(kChannel, record, combine, result, "gloo: connections");
  return RecordReader(result).get_text();
}

/// What each end of a connection says first.
struct Greeting {
  Token token = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  bool operator==(const Greeting&) const = default;
};

/// Whether each connection leads to the rank it should; why not, or nothing.
std::string greet(const std::shared_ptr<Mesh>& mesh, Token token, Deadline deadline) {
  constexpr std::uint64_t kSlot = ~std::uint64_t{0};
  std::vector<Greeting> sent(static_cast<std::size_t>(mesh->size()));
  std::vector<Greeting> received = sent;
  std::vector<std::pair<int, std::unique_ptr<Message>>> messages;
  try {
    for (int peer = 0; peer < mesh->size(); ++peer) {
      if (peer == mesh->rank()) continue;
      const auto at = static_cast<std::size_t>(peer);
      sent[at] = {.token = token, .from = mesh->rank(), .to = peer};
      messages.emplace_back(peer,
                            Mesh::receive(mesh, peer, kSlot, &received[at], sizeof(Greeting)));
      messages.emplace_back(peer, Mesh::send(mesh, peer, kSlot, &sent[at], sizeof(Greeting)));
    }
    for (const auto& [peer, message] : messages) {
      if (!message->wait(deadline)) return fmt::format("no answer from rank {}", peer);
    }
  } catch (const ConnectionLost& error) {
    return error.what();
  }
  for (int peer = 0; peer < mesh->size(); ++peer) {
    const Greeting expected{.token = token, .from = peer, .to = mesh->rank()};
    if (peer != mesh->rank() && received[static_cast<std::size_t>(peer)] != expected)
      return fmt::format("a stranger answered for rank {}", peer);
  }
  return {};
}

/// Who gives up while others connect lets them: gloo ends the process (a `terminate` in its thread)
/// whose new connection is closed before that thread has looked at it.
class Lingering {
 public:
  Lingering() = default;
  ~Lingering() {
    if (others_connect_) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  Lingering(const Lingering&) = delete;
  Lingering& operator=(const Lingering&) = delete;

  void end() { others_connect_ = false; }

 private:
  bool others_connect_ = true;
};

/// One attempt: the mesh, or why some rank has none.
std::shared_ptr<Mesh> try_to_connect(Control& control, const Wish& wish, const Network& network,
                                     int attempt, Deadline deadline, std::string& failure) {
  std::shared_ptr<Mesh> mesh;
  Listening own;
  try {
    own.address = address_of(wish, network);
    mesh = std::make_shared<Mesh>(control.rank(), control.size(), own.address);
    own.ports = mesh->ports();
  } catch (const std::exception& error) {
    own.error = error.what();
  }
  Lingering lingering;
  const std::vector<Listening> all = exchange(control, own);
  std::vector<Mesh::Place> places;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].error.empty())
      throw InvalidArgument(fmt::format("rank {}: gloo: {}", rank, all[rank].error));
    places.push_back({.address = all[rank].address,
                      .port = all[rank].ports[static_cast<std::size_t>(control.rank())]});
  }
  // All listen, so who can be reached is reached soon; who cannot is said by one of its ends only.
  const Deadline reached = Clock::now() + std::chrono::seconds(5 * attempt);
  failure = first_failure(control, mesh->connect(control, places, std::min(deadline, reached)));
  lingering.end();
  if (!failure.empty()) return nullptr;
  // All are connected, with someone: an answer takes as long as a message. A stranger gives none.
  const Deadline answered = Clock::now() + std::chrono::seconds(attempt * attempt);
  failure = first_failure(control, greet(mesh, network.token, std::min(deadline, answered)));
  return failure.empty() ? mesh : nullptr;
}

}  // namespace

std::shared_ptr<Messages> make_gloo(Control& control, const std::string& interface_or_host) {
  const auto start = Clock::now();
  const Wish wish = wish_of(interface_or_host);
  const Network network = agree_on_network(control, wish);
  // Whoever connects first to where gloo listens is taken for the peer, and found out by the
  // greeting: then all begin anew, at other ports.
  constexpr int kAttempts = 3;
  std::string failure;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const Deadline deadline = start + operation_timeout() * attempt / (kAttempts + 1);
    if (auto mesh = try_to_connect(control, wish, network, attempt, deadline, failure))
      return std::make_shared<GlooMessages>(std::move(mesh));
  }
  throw CommunicationError(fmt::format(
      "{}: gloo cannot connect the ranks; if hosts have several networks, name the interface that "
      "joins them by RATION_INTERFACE",
      failure));
}

}  // namespace ration

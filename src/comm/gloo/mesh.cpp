#include "comm/gloo/mesh.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sys/mman.h>

#include "comm/gloo/signal_mask.hpp"
#include "core/timeout.hpp"

namespace ration {
namespace {

std::uint16_t port_of(const gloo::transport::Address& address) {
  const sockaddr_storage storage = gloo::transport::tcp::Address(address.bytes()).getSockaddr();
  // The port lies at the same place in both families.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  sockaddr_in ip{};
  std::memcpy(&ip, &storage, sizeof ip);
  return ntohs(ip.sin_port);
}

std::vector<char> bytes_of(const Mesh::Place& place) {
  sockaddr_storage storage{};
  sockaddr_in ip4{};
  sockaddr_in6 ip6{};
  if (inet_pton(AF_INET, place.address.c_str(), &ip4.sin_addr) == 1) {
    ip4.sin_family = AF_INET;
    ip4.sin_port = htons(place.port);
    std::memcpy(&storage, &ip4, sizeof ip4);
  } else if (inet_pton(AF_INET6, place.address.c_str(), &ip6.sin6_addr) == 1) {
    ip6.sin6_family = AF_INET6;
    ip6.sin6_port = htons(place.port);
    std::memcpy(&storage, &ip6, sizeof ip6);
  }
  return gloo::transport::tcp::Address(storage).bytes();
}

}  // namespace

Mesh::Mesh(int rank, int size, const std::string& address) : rank_(rank), size_(size) {
  const BlockedSignals blocked;  // gloo's thread inherits them: handlers run on the program's own
  device_ = gloo::transport::tcp::CreateDevice(address.c_str());
  buffers_ = device_->createContext(rank, 0);
  pairs_ = device_->createContext(rank, size);
  pairs_->setTimeout(operation_timeout());
  ports_.resize(static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    ports_[static_cast<std::size_t>(peer)] = port_of(pairs_->createPair(peer)->address());
  }
}

std::string Mesh::connect(Control& control, const std::vector<Place>& places, Deadline deadline) {
  std::string failure;
  std::atomic<bool> done{false};
  Signal signal;
  // gloo's connect waits for the peer and cannot be told to stop, but by closing the pair.
  std::thread connector([&] {
    try {
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        pairs_->getPair(peer)->connect(bytes_of(places[static_cast<std::size_t>(peer)]));
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
    done.store(true);
    signal.notify();
  });
  constexpr std::chrono::milliseconds kLook(20);
  bool closed = false;
  while (!signal.wait([&] { return done.load(); }, Clock::now() + kLook)) {
    if (closed || (Clock::now() < deadline && !control.aborted())) continue;
    closed = true;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) pairs_->getPair(peer)->close();
    }
  }
  connector.join();
  if (closed) failure = "timed out";
  return failure;
}

std::unique_ptr<Message> Mesh::send(const std::shared_ptr<Mesh>& mesh, int peer, std::uint64_t slot,
                                    const void* data, std::size_t bytes) {
  return post(mesh, peer, GlooMessage::Way::send, slot, const_cast<void*>(data), bytes);
}

std::unique_ptr<Message> Mesh::receive(const std::shared_ptr<Mesh>& mesh, int peer,
                                       std::uint64_t slot, void* data, std::size_t bytes) {
  return post(mesh, peer, GlooMessage::Way::receive, slot, data, bytes);
}

std::unique_ptr<Message> Mesh::post(const std::shared_ptr<Mesh>& mesh, int peer,
                                    GlooMessage::Way way, std::uint64_t slot, void* data,
                                    std::size_t bytes) {
  const WithoutSigpipe guard;
  try {
    auto buffer = mesh->buffers_->createUnboundBuffer(data, bytes);
    const auto& pair = mesh->pairs_->getPair(peer);
    if (way == GlooMessage::Way::send) {
      pair->send(buffer.get(), slot, 0, bytes);
    } else {
      pair->recv(buffer.get(), slot, 0, bytes);
    }
    return std::make_unique<GlooMessage>(mesh, peer, way, std::move(buffer));
  } catch (const std::exception& error) {
    throw connection_lost(mesh->rank_, peer, error.what());
  }
}

Mesh::Abandoned::Abandoned(std::unique_ptr<gloo::transport::UnboundBuffer> gloo_buffer)
    : buffer(std::move(gloo_buffer)),
      stand_in(mmap(nullptr, std::max<std::size_t>(buffer->size, 1), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (stand_in == MAP_FAILED) throw std::bad_alloc();
}

Mesh::Abandoned::~Abandoned() {
  const std::size_t bytes = std::max<std::size_t>(buffer->size, 1);
  buffer.reset();
  munmap(stand_in, bytes);
}

void Mesh::abandon(std::unique_ptr<gloo::transport::UnboundBuffer> buffer) {
  // A buffer that is destroyed half-way would stop its connection for every other message.
  auto abandoned = std::make_unique<Abandoned>(std::move(buffer));
  // Once posted, a buffer is read and written by gloo's thread alone. Its pointer is const to its
  // users; gloo, in another library, loads it anew for each piece.
  Abandoned& own = *abandoned;
  {
    const std::lock_guard lock(mutex_);
    abandoned_.push_back(std::move(abandoned));
  }
  own.call.run(static_cast<gloo::transport::tcp::Device&>(*device_),
               [&own] { const_cast<void*&>(own.buffer->ptr) = own.stand_in; });
}

}  // namespace ration

#include "ops/channel/c_api.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ops/base/c_interface.h"
#include "ops/channel/channel.h"
#include "ops/channel/end.h"
#include "ops/channel/offered_sockets.h"
#include "ops/channel/registry.h"

namespace tf_strategies {
namespace {

Handles<UcxWorker>& TheEnds() {
  static auto* ends = new Handles<UcxWorker>;
  return *ends;
}

// Splits a text at line breaks: "a\n\nb" becomes "a", "", "b".
std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines{""};
  for (char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

Status RegisterReady(std::shared_ptr<Channel> made, double timeout, int64_t* channel) {
  TFS_RETURN_IF_ERROR(made->WaitReady(timeout));
  *channel = RegisterChannel(std::move(made));
  return Status::Ok();
}

Status Connect(int64_t id, const std::string& address, bool same_host, Names names, double timeout,
               int64_t* channel) {
  auto end = TheEnds().Take(id);
  if (end == nullptr) return InvalidArgument("no open end of a channel has this id");
  std::shared_ptr<Channel> made;
  TFS_RETURN_IF_ERROR(ConnectEnd(std::move(end), Side::kWorker, address, same_host, std::move(names), &made));
  return RegisterReady(std::move(made), timeout, channel);
}

Status ConnectOverSocket(int socket, const std::string& tls_folder, Names names, double timeout,
                         int64_t* channel) {
  std::shared_ptr<Channel> made;
  TFS_RETURN_IF_ERROR(ConnectSocket(socket, Side::kWorker, tls_folder, std::move(names), &made));
  return RegisterReady(std::move(made), timeout, channel);
}

std::string ToJson(const Channel& channel) {
  const ChannelStats stats = channel.stats();
  std::ostringstream json;
  json << "{\"transport\": \"" << channel.DescribeTransport()
       << "\", \"bytes_sent\": " << stats.wire.bytes_sent
       << ", \"bytes_received\": " << stats.wire.bytes_received
       << ", \"messages_sent\": " << stats.wire.messages_sent
       << ", \"messages_received\": " << stats.wire.messages_received
       << ", \"tensors_sent\": " << stats.tensors_sent << ", \"tensors_received\": " << stats.tensors_received
       << ", \"outstanding\": " << stats.outstanding << ", \"unclaimed\": " << stats.unclaimed << "}";
  return json.str();
}

}  // namespace
}  // namespace tf_strategies

using tf_strategies::CopyOut;
using tf_strategies::FindChannel;
using tf_strategies::Report;
using tf_strategies::TheEnds;
using tf_strategies::UcxWorker;

void tfs_channel_prepare(const char* host, const char* net_devices, const char* tls_folder) {
  tf_strategies::PrepareToAccept({host, net_devices, tls_folder});
}

void tfs_channel_offer_socket(const char* token, int64_t token_size, int socket) {
  tf_strategies::OfferSocket(std::string(token, static_cast<size_t>(token_size)), socket);
}

int tfs_channel_open_end(const char* transports, const char* net_devices, int64_t* end) {
  std::unique_ptr<tf_strategies::UcxWorker> opened;
  const auto status = tf_strategies::OpenEnd(tf_strategies::Lines(transports), net_devices, &opened);
  if (!status.ok()) return Report(status);
  *end = TheEnds().Add(std::move(opened));
  return 0;
}

int64_t tfs_channel_end_address(int64_t end, char* address, int64_t capacity) {
  const auto copy = [&](const UcxWorker& opened) { return CopyOut(opened.address(), address, capacity); };
  return TheEnds().With(end, copy, int64_t{-1});
}

void tfs_channel_close_end(int64_t end) { TheEnds().Take(end); }

int tfs_channel_connect(int64_t end, const char* server_address, int64_t server_address_size, int same_host,
                        const char* my_name, const char* server_name, double timeout_seconds,
                        int64_t* channel) {
  const std::string address(server_address, static_cast<size_t>(server_address_size));
  return Report(
      tf_strategies::Connect(end, address, same_host != 0, {my_name, server_name}, timeout_seconds, channel));
}

int tfs_channel_connect_socket(int socket, const char* tls_folder, const char* my_name,
                               const char* server_name, double timeout_seconds, int64_t* channel) {
  return Report(
      tf_strategies::ConnectOverSocket(socket, tls_folder, {my_name, server_name}, timeout_seconds, channel));
}

void tfs_channel_close(int64_t channel) { tf_strategies::CloseChannel(channel); }

void tfs_channels_close_all(void) { tf_strategies::CloseAllChannels(); }

void tfs_channel_fail(int64_t channel, int code, const char* message) {
  const auto found = FindChannel(channel);
  if (found != nullptr) found->Fail({static_cast<tf_strategies::Code>(code), message});
}

int tfs_channel_status(int64_t channel) {
  const auto found = FindChannel(channel);
  return found == nullptr ? -1 : Report(found->status());
}

int64_t tfs_channels_to(const char* peer_name, int64_t* channels, int64_t capacity) {
  const auto ids = tf_strategies::ChannelsTo(peer_name);
  const auto count = static_cast<int64_t>(ids.size());
  std::copy_n(ids.begin(), std::min(count, capacity), channels);
  return count;
}

int64_t tfs_channel_stats(int64_t channel, char* json, int64_t capacity) {
  const auto found = FindChannel(channel);
  return found == nullptr ? -1 : CopyOut(tf_strategies::ToJson(*found), json, capacity);
}

#include "ops/analysis/fair_sharing.h"

#include <algorithm>
#include <limits>

#include "ops/base/check.h"

namespace tf_strategies::schedule {
namespace {

// Shares that differ only by rounding are considered equal.
constexpr double kSame = 1 + 1e-12;

}  // namespace

FairSharing::FairSharing(const std::vector<Link>& links, int flows) : links_(links.size()), flows_(flows) {
  for (size_t i = 0; i < links.size(); ++i) {
    TFS_CHECK_GT(links[i].bandwidth, 0);
    links_[i].bandwidth = links[i].bandwidth;
  }
}

void FairSharing::Begin(int flow, const Path& path) {
  Flow& begun = flows_[flow];
  TFS_CHECK_EQ(begun.path.length, 0);
  TFS_CHECK_GT(path.length, 0);
  begun.path = path;
  begun.rate = 0;
  for (int i = 0; i < path.length; ++i) {
    std::vector<int>& there = links_[path.links[i]].flows;
    begun.place[i] = static_cast<int>(there.size());
    there.push_back(flow);
  }
  Touch(path);
}

void FairSharing::End(int flow) {
  Flow& ended = flows_[flow];
  TFS_CHECK_GT(ended.path.length, 0);
  for (int i = 0; i < ended.path.length; ++i) {
    const int link = ended.path.links[i];
    std::vector<int>& there = links_[link].flows;
    const int moved = there.back();
    there[ended.place[i]] = moved;
    there.pop_back();
    Flow& other = flows_[moved];
    for (int k = 0; k < other.path.length; ++k) {
      if (other.path.links[k] == link) other.place[k] = ended.place[i];
    }
  }
  Touch(ended.path);
  ended.path.length = 0;
  ended.rate = 0;
}

void FairSharing::Touch(const Path& path) {
  touched_.insert(touched_.end(), path.links.begin(), path.links.begin() + path.length);
}

const std::vector<int>& FairSharing::Update() {
  changed_.clear();
  ++round_;
  for (int link : touched_) {
    if (links_[link].seen == round_ || links_[link].flows.empty()) continue;
    CollectComponent(link);
    Fill();
  }
  touched_.clear();
  return changed_;
}

// Collects all links and flows that are connected with `link`.
void FairSharing::CollectComponent(int link) {
  component_links_ = {link};
  component_flows_.clear();
  links_[link].seen = round_;
  for (size_t next = 0; next < component_links_.size(); ++next) {
    LinkState& state = links_[component_links_[next]];
    state.left = state.bandwidth;
    state.open = static_cast<int>(state.flows.size());
    for (int id : state.flows) {
      Flow& flow = flows_[id];
      if (flow.seen == round_) continue;
      flow.seen = round_;
      flow.fixed = false;
      component_flows_.push_back(id);
      for (int i = 0; i < flow.path.length; ++i) {
        LinkState& other = links_[flow.path.links[i]];
        if (other.seen == round_) continue;
        other.seen = round_;
        component_links_.push_back(flow.path.links[i]);
      }
    }
  }
}

// Each round fills the links with the smallest share for each flow.
void FairSharing::Fill() {
  std::vector<int>& links = component_links_;
  for (size_t unfixed = component_flows_.size(); unfixed > 0;) {
    double share = std::numeric_limits<double>::infinity();
    links.erase(std::remove_if(links.begin(), links.end(), [&](int link) { return links_[link].open == 0; }),
                links.end());
    for (int link : links) share = std::min(share, links_[link].left / links_[link].open);
    full_.clear();
    for (int link : links) {
      if (links_[link].left <= share * kSame * links_[link].open) full_.push_back(link);
    }
    for (int link : full_) {
      for (int id : links_[link].flows) {
        Flow& flow = flows_[id];
        if (flow.fixed) continue;
        flow.fixed = true;
        --unfixed;
        for (int i = 0; i < flow.path.length; ++i) {
          LinkState& passed = links_[flow.path.links[i]];
          passed.left = std::max(0.0, passed.left - share);
          --passed.open;
        }
        if (flow.rate != share) {
          flow.rate = share;
          changed_.push_back(id);
        }
      }
    }
  }
}

}  // namespace tf_strategies::schedule

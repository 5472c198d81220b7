// Registry: objects of this process, by id. Ops and Python use these ids.
#ifndef OPS_BASE_REGISTRY_H_
#define OPS_BASE_REGISTRY_H_

#include <pthread.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

namespace tf_strategies {

// All methods are thread-safe. There is one registry for each T. It is empty in a forked process, because a
// child does not have the threads that drive its parent's objects.
template <typename T>
class Registry {
 public:
  using Objects = std::map<int64_t, std::shared_ptr<T>>;

  // Never destroyed: threads may outlive static destruction.
  static Registry& Get() {
    static Registry* const registry = [] {
      auto* const made = new Registry;
      pthread_atfork([] { Get().mutex_.lock(); }, [] { Get().mutex_.unlock(); },
                     [] { Get().ForgetInChild(); });
      return made;
    }();
    return *registry;
  }

  // Returns the object's id, which is never used twice.
  int64_t Add(std::shared_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    objects_[++last_id_] = std::move(object);
    return last_id_;
  }

  // Lets `further` be another id of an object, until the object is removed. Does nothing if there is no object.
  void AlsoCall(int64_t further, int64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(id);
    if (found != objects_.end()) objects_[further] = found->second;
  }

  // These return null if there is no object with the id.
  std::shared_ptr<T> Find(int64_t id) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(id);
    return found == objects_.end() ? nullptr : found->second;
  }
  // Removes all its ids.
  std::shared_ptr<T> Remove(int64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(id);
    if (found == objects_.end()) return nullptr;
    const auto object = found->second;
    for (auto each = objects_.begin(); each != objects_.end();) {
      each = each->second == object ? objects_.erase(each) : std::next(each);
    }
    return object;
  }

  // These return all objects, in the order they were added.
  Objects All() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return objects_;
  }
  Objects RemoveAll() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(objects_, {});
  }

 private:
  Registry() = default;

  // The objects are not destroyed, because that would wait for their threads.
  void ForgetInChild() {
    static auto* const left = new std::vector<Objects>;
    left->push_back(std::exchange(objects_, {}));
    mutex_.unlock();
  }

  mutable std::mutex mutex_;
  // Ids start at a random number, so that a graph that another process saved does not name an object of this
  // one.
  int64_t last_id_ = static_cast<int64_t>(std::random_device{}()) << 20;
  Objects objects_;
};

}  // namespace tf_strategies

#endif  // OPS_BASE_REGISTRY_H_

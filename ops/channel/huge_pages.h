// Fresh memory is handed out page by page as it is written: for a tensor of 64 MB that is 16,384 interruptions, which take longer
// than the copy itself. Huge pages make it 32.
#ifndef OPS_CHANNEL_HUGE_PAGES_H_
#define OPS_CHANNEL_HUGE_PAGES_H_

#include <cstddef>

namespace tf_strategies::channel {

// Asks for huge pages in memory that is about to be written, where it has room for some. A hint: nothing depends on it.
void PreferHugePages(void* data, size_t bytes);

}  // namespace tf_strategies::channel

#endif  // OPS_CHANNEL_HUGE_PAGES_H_

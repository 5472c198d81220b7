// What the processor that runs this can do.
#ifndef OPS_BASE_CPU_H_
#define OPS_BASE_CPU_H_

namespace tf_strategies {

bool HasAvx2();    // with FMA and F16C
bool HasAvx512();  // F, BW, DQ and VL

}  // namespace tf_strategies

#endif  // OPS_BASE_CPU_H_

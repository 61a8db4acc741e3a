// Threads of a block, as of a GPU or as plain C++.
//
// -DNT=256: threads of a block; -DMIN_BLOCKS=3: blocks that a multiprocessor is to hold. -DEMULATE: plain C++ for tests without
// a GPU, in which a warp has one lane, or -DW=32 of them: one thread, or -DNT=4 of them that each call the kernel after `enter`.
#pragma once

#ifdef EMULATE
#include <barrier>
#include <cmath>
#ifndef W
#define W 1
#endif
#ifndef NT
#define NT 1
#endif
static thread_local int thread_number;
static std::barrier<> threads_meet(NT);
#define DEVICE static inline
#define NOINLINE static
#define MEMBER
#define KERNEL extern "C" void
#define SYNC() threads_meet.arrive_and_wait()
#define TID thread_number
#define LANE (thread_number % W)
#define WARP (thread_number / W)
#define BLOCK 0
#define BLOCKS 1
#define UNROLL(count)
using std::fabs; using std::fmax; using std::fmin; using std::frexp; using std::ldexp; using std::sqrt;
extern "C" void enter(int number) { thread_number = number; }
#else
#define W 32
#ifndef NT
#define NT 256
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif
#define DEVICE __device__ __forceinline__
#define NOINLINE __device__ __noinline__
#define MEMBER __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(NT, MIN_BLOCKS)
#define SYNC() __syncthreads()
#define TID ((int)threadIdx.x)
#define LANE (TID & 31)
#define WARP (TID >> 5)
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(count) PRAGMA(unroll count)
#endif

#define NW (NT / W)

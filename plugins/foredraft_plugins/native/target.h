// Compiles the code between BEGIN and END for one instruction set, in a library that must load on any CPU.
// Include every standard header before BEGIN: an inline library function compiled in between could replace, at link
// time, the copy that older CPUs run.
#pragma once

#define FOREDRAFT_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define FOREDRAFT_TARGET_BEGIN(features) \
  FOREDRAFT_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define FOREDRAFT_TARGET_END _Pragma("clang attribute pop")
#else
#define FOREDRAFT_TARGET_BEGIN(features) _Pragma("GCC push_options") FOREDRAFT_PRAGMA(GCC target(features))
#define FOREDRAFT_TARGET_END _Pragma("GCC pop_options")
#endif

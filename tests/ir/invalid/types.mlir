#blocked = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>
#other = #ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [4, 8], warpsPerCTA = [1, 4], order = [0, 1]}>
"tt.func"() <{function_type = (i32, f32, tensor<32x16xf32, #blocked>, tensor<32x16xf32, #other>) -> (), sym_name = "elementwise"}> ({
^bb0(%i: i32, %f: f32, %a: tensor<32x16xf32, #blocked>, %b: tensor<32x16xf32, #other>):
  %0 = "arith.addi"(%i, %i) : (i32, i32) -> i64 // error: needs one type throughout, has i32 and i64
  %1 = "arith.cmpi"(%i, %i) <{predicate = 0 : i64}> : (i32, i32) -> i32 // error: gives i1, not i32
  %2 = "arith.select"(%i, %f, %f) : (i32, f32, f32) -> f32 // error: needs a condition of i1, has i32
  %3 = "arith.truncf"(%f) : (f32) -> f64 // error: must narrow, goes from 32 to 64 bits
  %4 = "arith.extsi"(%i) : (i32) -> i8 // error: must widen, goes from 32 to 8 bits
  %5 = "arith.constant"() <{value = 1 : i32}> : () -> i64 // error: holds a value of type i32 but gives i64
  %6 = "arith.constant"() : () -> i64 // error: has no value
  %7 = "tt.fp_to_fp"(%a) : (tensor<32x16xf32, #blocked>) -> tensor<32x16xf16, #other> // error: needs one layout throughout
  %8 = "tt.fp_to_fp"(%a) : (tensor<32x16xf32, #blocked>) -> tensor<16x16xf16, #blocked> // error: needs one shape throughout
  %9 = "arith.negf"() : () -> f32
  %10 = "math.exp2"(%a) : (tensor<32x16xf32, #blocked>) -> tensor<32x16xf32, #blocked>
  %11 = "arith.addf"(%f, %f) <{operandSegmentSizes = array<i32: 1, 0>}> : (f32, f32) -> f32 // error: operandSegmentSizes add up to 1, there are 2
  "tt.return"(%i) : (i32) -> () // error: returns (i32) from a function that gives ()
}) : () -> ()
// -----
#blocked = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>
#row = #ttg.slice<{dim = 1, parent = #blocked}>
"tt.func"() <{function_type = (f32, tensor<32x16xf32, #blocked>, tensor<32xf32, #row>) -> (), sym_name = "shapes"}> ({
^bb0(%f: f32, %a: tensor<32x16xf32, #blocked>, %r: tensor<32xf32, #row>):
  %0 = "tt.splat"(%f) : (f32) -> tensor<32xi32, #row> // error: repeats f32 but gives elements of i32
  %1 = "tt.expand_dims"(%r) <{axis = 1 : i32}> : (tensor<32xf32, #row>) -> tensor<1x32xf32, #blocked> // error: does not insert 1 at axis 1 of (32,): gives (1, 32)
  %2 = "tt.broadcast"(%a) : (tensor<32x16xf32, #blocked>) -> tensor<32x32xf32, #blocked> // error: cannot broadcast (32, 16) to (32, 32)
  %3 = "tt.reshape"(%a) : (tensor<32x16xf32, #blocked>) -> tensor<32x32xf32, #blocked> // error: the number of elements differs
  %4 = "tt.trans"(%a) <{order = array<i32: 1, 0>}> : (tensor<32x16xf32, #blocked>) -> tensor<32x16xf32, #blocked> // error: order [1, 0] makes (32, 16) into another shape than (32, 16)
  %5 = "tt.trans"(%a) <{order = array<i32: 1, 1>}> : (tensor<32x16xf32, #blocked>) -> tensor<16x32xf32, #blocked> // error: order [1, 1] is not a permutation of 2 dimensions
  %6 = "ttg.convert_layout"(%a) : (tensor<32x16xf32, #blocked>) -> tensor<32x16xf16, #blocked> // error: must keep the element type
  %7 = "tt.reduce"(%a) <{axis = 0 : i32}> ({ // error: over axis 0 of (32, 16) cannot give (32,)
  ^bb0(%x: f32, %y: f32):
    "tt.reduce.return"(%x) : (f32) -> ()
  }) : (tensor<32x16xf32, #blocked>) -> tensor<32xf32, #row>
  %8 = "tt.reduce"(%a) <{axis = 1 : i32}> ({ // error: its region takes (f32), not (f32, f32)
  ^bb0(%x: f32):
    "tt.reduce.return"(%x) : (f32) -> ()
  }) : (tensor<32x16xf32, #blocked>) -> tensor<32xf32, #row>
  "tt.return"() : () -> ()
}) : () -> ()
// -----
#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory
"tt.func"() <{function_type = (!ttg.memdesc<128x64xf16, #shared, #smem>, !ttg.memdesc<64x64xf16, #shared, #smem>, tensor<128x64xf32, #mma>, !ttg.memdesc<2x1xi64, #bar, #smem, mutable>, i32, i1, !tt.tensordesc<tensor<128x64xf16>>) -> (), sym_name = "memory"}> ({
^bb0(%a: !ttg.memdesc<128x64xf16, #shared, #smem>, %b: !ttg.memdesc<64x64xf16, #shared, #smem>, %c: tensor<128x64xf32, #mma>, %ring: !ttg.memdesc<2x1xi64, #bar, #smem, mutable>, %i: i32, %p: i1, %desc: !tt.tensordesc<tensor<128x64xf16>>):
  %0 = "ttng.warp_group_dot"(%a, %b, %c) <{isAsync = false}> : (!ttg.memdesc<128x64xf16, #shared, #smem>, !ttg.memdesc<64x64xf16, #shared, #smem>, tensor<128x64xf32, #mma>) -> tensor<128x64xf32, #mma>
  %1 = "ttng.warp_group_dot"(%a, %a, %c) <{isAsync = false}> : (!ttg.memdesc<128x64xf16, #shared, #smem>, !ttg.memdesc<128x64xf16, #shared, #smem>, tensor<128x64xf32, #mma>) -> tensor<128x64xf32, #mma> // error: shapes do not fit: (128, 64) x (128, 64) -> (128, 64)
  %2 = "tt.dot"(%a, %b, %c) : (!ttg.memdesc<128x64xf16, #shared, #smem>, !ttg.memdesc<64x64xf16, #shared, #smem>, tensor<128x64xf32, #mma>) -> tensor<128x64xf16, #mma> // error: accumulates into
  %3 = "ttg.local_load"(%a) : (!ttg.memdesc<128x64xf16, #shared, #smem>) -> tensor<64x64xf16, #mma> // error: through a buffer of another tile
  %4 = "ttg.local_alloc"(%c) : (tensor<128x64xf32, #mma>) -> !ttg.memdesc<128x64xf16, #shared, #smem> // error: through a buffer of another tile
  %5 = "ttg.memdesc_index"(%ring, %i) : (!ttg.memdesc<2x1xi64, #bar, #smem, mutable>, i32) -> !ttg.memdesc<1xi64, #bar, #smem, mutable>
  %6 = "ttg.memdesc_index"(%ring, %p) : (!ttg.memdesc<2x1xi64, #bar, #smem, mutable>, i1) -> !ttg.memdesc<1xi64, #bar, #smem, mutable> // error: needs an index of i32, has i1
  %7 = "ttg.memdesc_index"(%ring, %i) : (!ttg.memdesc<2x1xi64, #bar, #smem, mutable>, i32) -> !ttg.memdesc<2xi64, #bar, #smem, mutable> // error: cannot be
  "ttng.wait_barrier"(%5, %p) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>}> : (!ttg.memdesc<1xi64, #bar, #smem, mutable>, i1) -> () // error: needs a phase of i32, has i1
  "ttng.arrive_barrier"(%a) <{count = 1 : i32}> : (!ttg.memdesc<128x64xf16, #shared, #smem>) -> () // error: needs a barrier (a buffer of i64) first
  "ttng.barrier_expect"(%5) <{size = 1 : i32}> : (!ttg.memdesc<1xi64, #bar, #smem, mutable>) -> () // error: needs 2 operands, has 1
  %8 = "tt.descriptor_load"(%desc, %i, %i) : (!tt.tensordesc<tensor<128x64xf16>>, i32, i32) -> tensor<64x64xf16, #mma> // error: with a descriptor of tensor<128x64xf16>
  "tt.return"() : () -> ()
}) : () -> ()

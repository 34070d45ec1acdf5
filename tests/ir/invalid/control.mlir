"tt.func"() <{function_type = (i32, f32, i1) -> (), sym_name = "structured"}> ({
^bb0(%n: i32, %f: f32, %c: i1):
  %0 = "scf.for"(%n, %n, %n, %f) ({ // error: yielded value 0 has type i32, the results want f32
  ^bb0(%i: i32, %x: f32):
    "scf.yield"(%i) : (i32) -> ()
  }) : (i32, i32, i32, f32) -> f32
  %1 = "scf.for"(%n, %n, %n, %f) ({ // error: region argument: 0 values for 1 results
  ^bb0(%i: i32):
    "scf.yield"(%f) : (f32) -> ()
  }) : (i32, i32, i32, f32) -> f32
  "scf.for"(%n, %n, %f) ({ // error: needs one type throughout, has i32 and f32
  ^bb0(%i: i32):
    "scf.yield"() : () -> ()
  }) : (i32, i32, f32) -> ()
  %2 = "scf.if"(%c) ({ // error: gives results but has no else region
    "scf.yield"(%f) : (f32) -> ()
  }, {
  }) : (i1) -> f32
  "scf.if"(%n) ({ // error: needs a condition of i1, has i32
    "scf.yield"() : () -> ()
  }, {
  }) : (i32) -> ()
  %3 = "scf.while"(%n) ({ // error: passed value 0 has type f32, the results want i32
  ^bb0(%x: i32): // the body's arguments are those of the condition
    "scf.condition"(%c, %f) : (i1, f32) -> ()
  }, {
  ^bb0(%x: f32):
    "scf.yield"(%n) : (i32) -> ()
  }) : (i32) -> i32
  "tt.return"() : () -> ()
}) : () -> ()
// -----
"tt.func"() <{function_type = (i32, i1) -> (), sym_name = "ends"}> ({
^bb0(%n: i32, %c: i1):
  "scf.if"(%c) ({
    %0 = "arith.addi"(%n, %n) : (i32, i32) -> i32 // error: region 0 of scf.if must end with scf.yield
  }, {
  }) : (i1) -> ()
  "scf.if"(%c) ({ // error: region 0 has a block without operations
  ^bb0:
  }, {
  }) : (i1) -> ()
  "scf.for"(%n, %n, %n) ({
  ^bb0(%i: i32):
    "scf.yield"() : () -> () // error: ends its block but is not the last operation in it
    "scf.yield"() : () -> ()
  }) : (i32, i32, i32) -> ()
  %1 = "arith.addi"(%n, %n) : (i32, i32) -> i32 // error: is the last operation of its block but does not end it
}) : () -> ()
"tt.func"() <{function_type = (i32, i1) -> (), sym_name = "arguments"}> ({ // error: takes 2 arguments by its type, its entry block has others: (i32)
^bb0(%n: i32):
  "wspec.anything"(%n) : (i32) -> ()
}) : () -> ()
"tt.func"() <{sym_name = "untyped"}> ({ // error: has no function type
}) : () -> ()
// -----
"tt.func"() <{function_type = (i32, i1) -> (), sym_name = "blocks"}> ({
^bb0(%n: i32, %c: i1):
  "cf.cond_br"(%c)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (i1) -> ()
^bb1:
  %x = "arith.addi"(%n, %n) : (i32, i32) -> i32
  "cf.br"(%x)[^bb3] : (i32) -> ()
^bb2:
  %y = "arith.addi"(%n, %x) : (i32, i32) -> i32 // error: operand 1 (%0, i32) is not defined on every way to here
  "cf.br"(%c)[^bb3] : (i1) -> () // error: branch operand 0 has type i1, the block arguments want i32
^bb3(%z: i32):
  %w = "arith.addi"(%z, %n) : (i32, i32) -> i32
  "tt.return"() : () -> ()
^bb4: // control never comes here
  %v = "arith.addi"(%w, %n) : (i32, i32) -> i32
  "cf.cond_br"(%n)[^bb3] : (i32) -> () // error: needs a condition of i1, has i32
}) : () -> ()
// -----
"tt.func"() <{function_type = (i32, i1) -> (), sym_name = "dominance"}> ({
^bb0(%n: i32, %c: i1):
  %0 = "arith.addi"(%n, %1) : (i32, i32) -> i32 // error: operand 1 (%1, i32) is not defined on every way to here
  %1 = "arith.addi"(%n, %n) : (i32, i32) -> i32
  %2 = "scf.for"(%n, %n, %n, %n) ({
  ^bb0(%i: i32, %x: i32):
    %3 = "arith.addi"(%2, %x) : (i32, i32) -> i32 // error: operand 0 (%2, i32) is not defined on every way to here
    "scf.yield"(%3) : (i32) -> ()
  }) : (i32, i32, i32, i32) -> i32
  "tt.return"() : () -> ()
}) : () -> ()

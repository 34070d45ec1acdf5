"tt.func"() <{function_type = (i32, f32) -> (), sym_name = "isolated"}> ({
^bb0(%n: i32, %f: f32):
  "ttg.warp_specialize"(%n) <{partitionNumWarps = array<i32: 4, 1>}> ({
    %0 = "arith.addf"(%f, %f) : (f32, f32) -> f32
    "ttg.warp_yield"() : () -> ()
  }, {
    "ttg.warp_specialize.partitions"() ({
    ^bb0(%a: i32):
      %1 = "arith.addi"(%a, %n) : (i32, i32) -> i32 // error: operand 1 (%arg0, i32) comes from outside an isolated region; it must be passed in as an argument
      "ttg.warp_return"() : () -> ()
    }, {
    ^bb0(%a: i32):
      "scf.for"(%a, %a, %a) ({
      ^bb0(%i: i32):
        "wspec.use"(%f) : (f32) -> () // error: operand 0 (%arg1, f32) comes from outside an isolated region
        "scf.yield"() : () -> ()
      }) : (i32, i32, i32) -> ()
      "ttg.warp_return"() : () -> ()
    }) : () -> ()
  }) : (i32) -> ()
  "tt.return"() : () -> ()
}) : () -> ()
// -----
"tt.func"() <{function_type = (i32, f32) -> (), sym_name = "captures"}> ({
^bb0(%n: i32, %f: f32):
  %r = "ttg.warp_specialize"(%n, %f) <{partitionNumWarps = array<i32: 4, 1>}> ({ // error: partition 0 argument: 1 values for 2 captures
    "ttg.warp_yield"(%f) : (f32) -> () // the operation above: yielded value 0 has type f32, the results want i32
  }, {
    "ttg.warp_specialize.partitions"() ({
    ^bb0(%a: i32):
      "ttg.warp_return"() : () -> ()
    }) : () -> ()
  }) : (i32, f32) -> i32
  "ttg.warp_specialize"(%n) ({ // error: needs a default region and a region that holds ttg.warp_specialize.partitions alone
    "ttg.warp_yield"() : () -> ()
  }) : (i32) -> ()
  "ttg.warp_specialize"() ({
    "scf.yield"() : () -> () // error: region 0 of ttg.warp_specialize must end with ttg.warp_yield
  }, {
    "ttg.warp_specialize.partitions"() ({
    ^bb0:
      "ttg.warp_return"() : () -> ()
    }) : () -> ()
  }) : () -> ()
  "tt.return"() : () -> ()
}) : () -> ()

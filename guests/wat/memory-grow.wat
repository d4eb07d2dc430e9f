  ;; Growth by zero pages, forever: each is a call into the host for the fuel of one instruction.
  (memory (export "memory") 1)
  (func $attack (result i32)
    (loop $again (br_if $again (i32.ne (memory.grow (i32.const 0)) (i32.const -1))))
    (unreachable))

  ;; Three memories, each of which stays far below the limit that their sum breaks.
  (memory (export "memory") 1)
  (memory $second 1)
  (memory $third 1)
  (func $attack (result i32)
    (loop $again
      (br_if $again (i32.and (i32.and
        (i32.ne (memory.grow (i32.const 16)) (i32.const -1))
        (i32.ne (memory.grow $second (i32.const 16)) (i32.const -1)))
        (i32.ne (memory.grow $third (i32.const 16)) (i32.const -1)))))
    (unreachable))

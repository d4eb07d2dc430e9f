  ;; Two tables that grow until one more element is refused.
  (memory (export "memory") 1)
  (table $first 1 funcref)
  (table $second 1 funcref)
  (func $attack (result i32)
    (loop $again
      (br_if $again (i32.and
        (i32.ne (table.grow $first (ref.null func) (i32.const 100)) (i32.const -1))
        (i32.ne (table.grow $second (ref.null func) (i32.const 100)) (i32.const -1)))))
    (unreachable))

;; The clocks of `wasi_snapshot_preview1`, over the contract's clock, for a program whose allocator
;; pauses them.
;;
;; Go's collector may run while the host writes into the program's memory, and reads both clocks. A
;; component may call no import then: the clocks stand still until the allocator is finished.
;; Wasmtime's adapter pauses the monotonic clock only.
(module
  (import "env" "memory" (memory 0))
  (import "skysail:provider/clock@0.1.0" "now-ms" (func $now_ms (result i64)))
  (import "skysail:provider/clock@0.1.0" "monotonic-ns" (func $monotonic_ns (result i64)))
  (global $paused (mut i32) (i32.const 0))
  ;; The last readings, in nanoseconds.
  (global $realtime (mut i64) (i64.const 0))
  (global $monotonic (mut i64) (i64.const 0))
  (func (export "adapter_monotonic_clock_set_paused") (param $is_paused i32)
    (global.set $paused (local.get $is_paused)))
  ;; Every clock but the realtime clock, 0, is the monotonic one: the others are about the time of
  ;; the processor.
  (func (export "clock_time_get") (param $id i32) (param $precision i64) (param $time i32) (result i32)
    (if (i32.eqz (global.get $paused)) (then
      (if (local.get $id)
        (then (global.set $monotonic (call $monotonic_ns)))
        (else (global.set $realtime (i64.mul (call $now_ms) (i64.const 1000000)))))))
    (i64.store align=1 (local.get $time)
      (select (global.get $monotonic) (global.get $realtime) (local.get $id)))
    (i32.const 0)))

// Package conformance checks whether a worker, in whatever language, follows the protocol of
// stages/remote. It is `cuelight conformance`.
//
//	failed, err := conformance.Run(ctx, conformance.Options{
//		Worker: "python3 docs/worker.py", Report: func(r conformance.Result) { fmt.Println(r.Check, r.Err) },
//	})
//
// For each check Run starts the worker, and a real coordinator on a loopback address with a temporary database.
// A worker could pass a second implementation of the protocol and fail at the first coordinator that differs.
//
// The pipeline is named conformance. Its one stage, work, takes params.seconds seconds at least, reads
// the file input, and delivers a file output with the same bytes. The result is an object with the
// number of bytes, as in {"bytes": 7}. The worker has one slot.
//
// The worker finds the coordinator's address, without the path of the worker API, in the variable
// CUELIGHT_SERVER, and its key in CUELIGHT_KEY.
package conformance

// Package remote lets workers without a database work on a pipeline. They talk to a
// [Coordinator], a process with the database, over HTTP.
//
// In the process with the database:
//
//	c := remote.NewCoordinator(remote.Options{Pool: pool, Pipeline: pipeline, Authenticate: keyOf})
//	mux.Handle("/worker/", http.StripPrefix("/worker", c))
//	err := c.Run(ctx)
//
// On a host without:
//
//	client, err := remote.NewClient(remote.ClientOptions{URL: "https://media.example/worker", Key: key, Graph: pipeline.Graph()})
//	r := stages.Runner{Pipeline: pipeline, Backend: client.Backend(), Wakes: client.Wakes()}
//	err = r.Run(ctx)
//
// # Guarantees
//
// A remote worker is a worker like any other: the same [stages.Runner] with another Backend. Its
// claims have the same tokens, attempts and leases, and a late report changes nothing.
//
// A free worker keeps one request open. The coordinator answers it as soon as a notification of
// the database says that a stage has ready tasks, so nobody polls. Waiting workers cost the
// database one statement every few seconds, however many they are.
//
// A coordinator holds nothing that is not in the database or on the disk. A worker may change to
// another one at any time, and after the death of a coordinator no claim expires before the
// worker's lease.
//
// A worker may only read and write what belongs to its own claims. Every request is checked
// against the name that Options.Authenticate returns.
//
// # Limits
//
// A coordinator does not expire lost workers: a [stages.Runner] of the same pipeline, with the
// database, must run in some process. It does not terminate TLS.
//
// docs/workers.md describes the protocol, for workers in other languages.
package remote

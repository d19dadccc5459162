// Package storage keeps the files of stages in a bucket of an S3-compatible service.
//
// [ParseAddress] reads an address such as s3://bucket/prefix, and [Open] returns its
// [Bucket]. A bucket has artifacts and documents:
//
//   - An artifact is a directory that never changes: the result of an attempt. Its
//     manifest, with the size and SHA-256 of every file, is written last and only if there
//     is none. An artifact without a manifest does not exist for readers, so no reader
//     sees a part of one, whatever request fails.
//   - A document is a small file that is replaced by conditional writes, such as the
//     manifest at the stable address of a video. Of two writers that read the same
//     version, one gets [ErrConflict].
//
// Every operation can be repeated after an error and continues: PutArtifact with the parts
// that the service has, GetArtifact with the bytes on disk. Interrupting one loses at most
// the requests in flight: a part per connection when uploading, nothing that was written to
// disk when downloading.
//
// # Errors
//
// A [ServiceError] is a problem of this host or of the service, such as wrong credentials, a
// full bucket or a cut connection. It says what to do, and the caller's task is not the
// cause. The others are fs.ErrNotExist, fs.ErrExist, [ErrConflict], [ErrCorrupt], errors of
// the local disk, and the cause of a cancelled context.
//
// # Names
//
// Names of artifacts and documents are slash-separated, relative to the address, and valid
// by [io/fs.ValidPath]. Two attempts must use two names for their artifacts. No artifact
// may be inside another.
//
// The package does not delete by itself, does not limit local space, does not contact the
// metadata service of a cloud, and does not log.
package storage

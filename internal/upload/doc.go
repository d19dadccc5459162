// Package upload receives files over HTTP, in one request or in several that can be
// resumed, and submits each file when it is complete.
//
// Call [New], serve the [Uploads] under Options.BasePath, call [Uploads.CleanUp] when the
// process starts and every few minutes, and [Uploads.Close] before the process ends. What
// it promises:
//
//   - A complete file is synced to disk and renamed to the path that Options.OnComplete
//     gets. An incomplete file has another name.
//   - It calls OnComplete for every complete upload until it returned nil once, even
//     after a crash of the process or the host. OnComplete may be called again for an
//     upload that it has handled, so it must be idempotent by Upload.ID.
//   - Only the principal who created an upload can see, resume and delete it. Its id
//     cannot be guessed.
//   - Options.Store has returned nil for a file before OnComplete gets it, so it can copy the
//     file to other hosts. Options.Release is called before a complete file is deleted.
//   - One request at a time appends to an upload.
//   - Text from clients, such as a file's name, is never part of a path, except a file
//     extension of letters and digits.
//   - Memory does not grow with the size of uploads.
//
// # Protocol
//
// Resumable uploads use the tus protocol 1.0.0 with the extensions creation,
// creation-with-upload, expiration, checksum (sha1, sha256) and termination:
//
//	OPTIONS  BasePath      returns the extensions and the maximum size
//	POST     BasePath      creates an upload: Upload-Length, Upload-Metadata
//	HEAD     BasePath{id}  returns the offset
//	PATCH    BasePath{id}  appends; at the end, Upload-Metadata with a new request_id
//	                       replaces one that belongs to another task
//	DELETE   BasePath{id}  deletes the upload, unless it has a task
//
// Upload-Metadata can contain filename or name, filetype or type, params, user_context and placement (JSON objects),
// priority (-32768 to 32767), user_id, request_id, and sha256 (hexadecimal), which is
// compared before the upload is complete. All pairs are in Upload.Metadata.
//
// An upload in a single request, for curl and forms, is a PUT, or a POST without the
// headers of tus. The metadata is in the query, or in the form's fields before the file:
//
//	curl -T film.mp4 http://host/uploads/
//	curl --data-binary @film.mp4 'http://host/uploads/?filename=film.mp4'
//	curl -F priority=5 -F file=@film.mp4 http://host/uploads/
//
// The response is 201 with the task, or 202 if the file will be submitted later. GET
// returns the principal's unfinished uploads, or one upload. The header Cuelight-Task
// contains the task of an upload, and Cuelight-Task-Existed says that the task existed
// before. Errors are problem details of RFC 9457.
//
// After the last byte, the file is verified, synced and submitted, which may take
// minutes. Meanwhile HEAD returns the full length and other requests get 423. The upload
// has a task as soon as responses contain Cuelight-Task.
//
// # Reservations
//
// The missing bytes of an upload are reserved on the disk, and count towards
// Options.MaxReserved and MaxReservedPerPrincipal. Those of one principal keep others from
// at most half of the space. A reservation ends if no data arrives
// for Options.ReservationTimeout; the next request renews it if there is space. After that
// time since its creation, an upload reserves eight times as many bytes as have arrived, at most. A form
// reserves the length of its request. An upload of unknown length counts as MaxBytes
// towards the limits, but reserves no disk space.
//
// # Revoked keys
//
// Options.CheckPrincipal is called during an upload and before it is complete. If the
// principal's key is revoked, the request ends with 401. An incomplete file is kept; a
// complete one is deleted. Uploads for which Options.IsRevoked is true reserve nothing.
//
// # Durability
//
// A broken connection or the end of the process loses no byte that has arrived. The bytes
// of a PATCH that succeeded are on disk. After a crash of the host, an unfinished upload
// can be shorter than a HEAD in between reported; tus clients continue from the new
// offset. Bytes after the last successful PATCH are correct if the file system never
// extends a file before its data is written. Clients can send sha256 to be sure.
//
// # Deletion
//
// An uploaded file is this package's own copy, and the task's first stage makes another.
// So the package deletes:
//
//   - an unfinished upload after DELETE, or without new data for Options.Expiration;
//   - an upload that OnComplete refuses; see [ErrRefused];
//   - an upload whose request id belongs to another task, after DELETE; see
//     [ErrRequestIDTaken];
//   - a finished upload when Options.SourceState says that the task has its own copy, or
//     for Options.TaskEndedRetention that it has ended without one. By default, and after
//     an error of SourceState, the file is kept.
//
// A later task with the path of a deleted upload does not find the file. A program that
// can run a task again from its source must return [SourceNeeded] until then.
//
// # Limits
//
// The package does not authenticate requests; Options.Principal returns the result. It
// does not prevent cross-site requests: put [http.CrossOriginProtection] in front of it.
// It sets no CORS headers, and does not look into files.
//
// Several processes can share a directory. Each process checks the limits, so uploads
// that are created at the same moment may exceed them.
//
// It sets the deadlines of connections through [http.ResponseController], so a wrapped
// ResponseWriter must have Unwrap, and the server's ReadTimeout and WriteTimeout do not
// apply.
package upload

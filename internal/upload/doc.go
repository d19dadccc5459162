// Package upload takes files in over HTTP, whole or in pieces that may be
// continued after anything that breaks, and hands each over once it is complete.
//
// Call [New], serve the [Uploads] it returns under Options.BasePath, call
// [Uploads.Recover] when the process starts, [Uploads.Tidy] every few minutes
// and [Uploads.Close] before the process ends. What it promises:
//
//   - A complete file is synced to disk and then renamed to the path that
//     Options.OnComplete is given. What is not complete has another name.
//   - OnComplete is called for every complete upload until it has returned nil
//     once, across crashes of the process and of the machine. It may thus be
//     called again for an upload that it has handled: what it submits must be
//     made idempotent with Upload.ID.
//   - An upload is seen, continued and ended only by the principal who began
//     it. To all others it does not exist. Its id cannot be guessed.
//   - One request at a time adds to an upload. The file is never the work of
//     two.
//   - What clients say, a file's name above all, is data. It is never part of a
//     path, but for an ending such as ".mp4" of letters and digits.
//   - Memory does not grow with the size of what comes.
//
// # What is spoken
//
// The resumable way is the tus protocol, version 1.0.0, with the extensions
// creation, creation-with-upload, expiration, checksum (sha1, sha256) and
// termination, so that tus-js-client, Uppy and others work as they are:
//
//	OPTIONS  BasePath      what is spoken here, and the largest size
//	POST     BasePath      begins: Upload-Length, Upload-Metadata
//	HEAD     BasePath{id}  says how much has come
//	PATCH    BasePath{id}  adds to it; at its end, with Upload-Metadata, names
//	                       another request id where that was another task's
//	DELETE   BasePath{id}  ends it, unless a task was made of it
//
// Upload-Metadata may have filename or name, filetype or type, params (a JSON
// object), priority (-32768 to 32767), user_id, request_id, and sha256 (hexadecimal),
// which is then compared before the upload counts as complete. Everything else
// is handed on in Upload.Metadata.
//
// The simple way, all or nothing, is for curl and for forms. It is a POST
// without the headers of tus, or a PUT; what tus has in Upload-Metadata is in
// the query, or in the form's fields before the file:
//
//	curl -T film.mp4 http://host/uploads/
//	curl --data-binary @film.mp4 'http://host/uploads/?filename=film.mp4'
//	curl -F priority=5 -F file=@film.mp4 http://host/uploads/
//
// It answers 201 with the task, or 202 where the task cannot be made right now
// and will be without the client. With GET a principal sees the uploads begun,
// or one of them. An upload that has a task says so in the header Cuelight-Task,
// and in Cuelight-Task-Existed where that was there before.
//
// Errors are problem details after RFC 9457.
//
// When all has come, the file is checked, synced and handed over, which may take
// minutes. Who asks then is told 423, or by HEAD the full length; it has become a task
// once there is Cuelight-Task.
//
// # How much may be begun
//
// What was announced and is yet to come has room kept for it on the disk, and counts
// towards Options.MaxReserved and MaxReservedEach, while something comes. When nothing
// has for Options.Lapse, others may have the room: whoever goes on then is let in
// again if there is some. A form counts with the length of its request. What comes
// without any length counts as MaxBytes, but neither it nor another is refused for want
// of a disk that would hold that: writing tells.
//
// # Revoked keys
//
// Options.Still is asked while an upload is received, and before it counts as complete.
// Where the principal's key is revoked, the request ends with 401. A part of a file is
// kept as after a broken connection; a whole file is deleted.
//
// # When bytes are lost
//
// A broken connection loses nothing that has arrived, nor does the end of the
// process, however it comes. What a PATCH was answered for is on disk. After a
// crash of the machine an unfinished upload may be shorter than a HEAD in
// between has said; clients of tus ask and go on from there. That what is there
// beyond the last answer is right is as sure as the file system is that a file
// never has a length without its content. Who wants it surer sends sha256.
//
// # When files are deleted
//
// Sources are never deleted unless asked, but what was uploaded is this
// package's own copy of somebody's file, and the pipeline's first stage makes
// another that the task keeps. Deleted are therefore:
//
//   - an unfinished upload, when its principal says DELETE, or when nothing was
//     added to it for Options.Expire;
//   - a finished one that OnComplete refuses for good, see [ErrRefused];
//   - one whose request id is another task's, see [ErrRequestTaken], when its
//     principal says DELETE;
//   - a finished one with a task, by [Uploads.Release], or by [Uploads.Tidy]
//     once Options.Fate says that its task has taken its copy or has been gone
//     for Options.GoneFor. Without Fate none is, ever, and any doubt, such as
//     an error of Fate's, keeps the file.
//
// A new task with the path of an upload that was deleted finds nothing there.
// Who offers to make a video again from its source must keep that in mind, and
// have Fate say [Needed] for as long.
//
// # What it does not do
//
// It does not authenticate: that has happened when a request gets here, and
// Options.Principal says who it is. It does not tell a request of one's own page
// from one that another site has its visitors make, and what it takes the simple
// way, such a site can send: put [http.CrossOriginProtection] in front. It sets
// no cross-origin headers. It does not look into files: the first stage does.
//
// Several processes may share a directory. Limits are then kept by each, so that
// together they may go over them by what they begin in the same moment.
//
// It sets the deadlines of its connections itself, through
// [http.ResponseController]: a ResponseWriter that is wrapped must have Unwrap,
// and the server's ReadTimeout and WriteTimeout do not apply.
package upload

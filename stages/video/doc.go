// Package video is the built-in pipeline: five stages that make a published HLS
// and DASH video of a file or a URL.
//
//	ingest ──▶ transcode ──┐
//	      └──▶ metadata  ──┴──▶ assemble ──▶ publish
//
// Start with a [Config] and give its [Stages] to [Pipeline]. To build a pipeline
// of your own, take single stages, such as Config.Ingest. The stages find each
// other's results by their names here.
//
// # Guarantees
//
//   - A source is only read. It is never moved, changed or deleted.
//   - The served files themselves are checked against their source, by frames,
//     by seconds, by the level of the sound, and by some pictures. A new version replaces the old one by a rename, after it
//     is complete and synced to disk.
//   - Any stage may run again at any time, also while an attempt that lost its
//     claim still runs. No two attempts write to the same directory, and none
//     removes a possible result of another. An attempt removes its unfinished
//     files. If it was killed, the next attempt or a [Cleaner] removes them.
//   - Long work reports every step and nothing else, so the engine can cancel
//     an attempt that makes no progress for Config.Stall.
//   - A source is read three times: ingest copies and hashes it and lists its
//     packets; transcode decodes it. Of a divided transcode, each part reads
//     what it needs. If it has text subtitles, metadata reads it once more.
//   - A divided transcode has the same frames as an undivided one. docs/architecture.md
//     says how, and which sources are not divided.
//   - A stage returns after its files are synced to disk.
//   - A clock that is wrong by up to an hour removes nothing early and delays
//     nothing forever.
//   - Every account can read what is published, whatever the umask: directories
//     have mode 0755, files 0644. PublishDir and its parents are not changed.
//
// The package does not create DataDir or PublishDir, and does not log. It deletes
// a finished result only after a newer result has replaced it.
//
// # Directories
//
//	DataDir/tasks/<task>/
//	    download.part               an unfinished download, to be continued
//	    ingest-0001-k3j9x2mq7b/     the source
//	    chunk-0001-…/               a part of its transcode
//	    transcode-0001-…/           its renditions, storyboard/
//	    metadata-0001-…/            metadata.json, poster.jpg, captions-de/
//	    assemble-0001-…/            all of it, with master.m3u8, manifest.mpd, video.mp4, preview.mp4
//	    transcode-0002-….tmp/       a running attempt, or a directory in removal
//	PublishDir/<task>/
//	    master.m3u8                 the stable URLs; they refer to the newest
//	    manifest.mpd                generation
//	    gen-0001-…/                 an older generation, for current viewers
//	    gen-0002-…/                 the newest generation
//	    .switch-…/                  manifests that are about to be switched to
//
// Renditions are hard-linked from stage to stage. They take space once if DataDir
// and PublishDir are on one file system, otherwise twice. The source takes space
// next to the original unless the file system has reflinks or Config.LinkSources
// is set.
//
// # Buckets and remote workers
//
// With Config.Bucket, DataDir/copies is scratch space: an attempt fetches the results that
// it needs, and stores its own as an artifact under the same name. With
// Config.PublishBucket, a generation is an artifact, and the stable URLs are replaced by
// conditional writes. A Cleaner removes the same as in directories. [Relocation] compares
// copies of results and published videos in other locations. [RemoteStages] are the
// stages of a worker that has neither; [RemoteFiles] gives it its source, and checks what
// it delivers.
//
// # Retention
//
// The directory with a stage's result stays. Later stages remove the directories
// of earlier successful attempts after they have used the result, and assemble those
// of joined chunks. The results
// also stay when a task ends, is dead or is cancelled, unless Config.KeepSourceCopies
// is set, the task is deleted, or a Runner's Retention deletes it. Otherwise only an operator may
// remove:
//
//   - DataDir/tasks/<task>, completely, after all stages are completed, or after
//     the task is dead or cancelled for good. The published video does not need
//     it. Afterwards publish can run again, and else only all stages from ingest
//     on, if the source still exists. If renditions are linked, this frees little more than the
//     copy of the source; Config.MeasureTasks says how much.
//   - PublishDir/<task>, completely, to withdraw the video, unless it is the only
//     copy. To publish it again, run the publish stage again.
//   - PublishDir/<task>/gen-…, if neither master.m3u8 nor manifest.mpd refers to
//     it and nobody plays it. A Cleaner, and publishing the task again, do so
//     after Config.KeepOld.
//
// Never remove anything in DataDir/tasks/<task> while one of its stages waits or
// runs, and never a single directory in it: later stages know its name.
//
// # Errors
//
// An error of the source is permanent: it is missing, encrypted or not media.
//
// An error of the host that affects every task is postponed, without limit and
// without counting as an attempt: ffmpeg is missing, the host is overloaded, a disk
// is full, missing or read-only, the storage service does not answer. If DataDir or
// PublishDir is missing, every error counts as an error of the disk. Meanwhile this
// process suspends the stage, and tries one task at a time, first after a second
// and at last every 5 minutes. Where only this task is affected, it is postponed
// for 5 minutes or for as long as the attempt took, and the stage goes on: it needs
// more space than there is above the reserve, its own directory is missing, or only
// root may read its source.
//
// An error that the task may have caused counts as an attempt. It is retried
// after 5 minutes and then every hour: not enough memory, a missing permission, a
// failing disk. A hardware encoder that fails is no error: the attempt begins again
// with libx264, and its result has a warning. Renditions that do not match the
// source are made once more. All other errors, such as an ffmpeg that hangs or was
// killed, are retried as usual.
package video

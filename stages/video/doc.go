// Package video is the built-in pipeline: the five stages that make a
// published HLS and DASH video of a file or an address.
//
//	ingest ──▶ transcode ──┐
//	      └──▶ metadata  ──┴──▶ assemble ──▶ publish
//
// Give [Stages] of a [Config] to stages.New. To build a pipeline of your own
// around some of them, take a single one, such as Config.Ingest; the stages
// find each other's results by the names they have here.
//
// What it promises:
//
//   - A source is only read. It is never moved, changed or deleted.
//   - What is published was checked, frame- and second-wise against its source,
//     in the very files that are served. Until a new version is complete, in
//     place and on disk, the old one is what everybody sees; then one rename
//     switches over.
//   - Any stage may be run again at any time, also while an attempt that lost
//     its claim is still running somewhere: no two attempts write to the same
//     directory, none removes what another may have as its result, and what
//     an attempt leaves unfinished it removes itself. If it was killed, the
//     next one does, or a [Tidier].
//   - An attempt that makes no progress for Config.Stall is to be cancelled by
//     the engine: whatever takes long tells of each step, and of nothing else.
//   - A source is read three times from start to end: ingest copies and hashes it,
//     lists its packets, and transcode decodes it, for the renditions.
//   - A stage that has returned has its files synced to disk.
//   - A clock that is wrong by up to an hour, or jumps as far, removes nothing
//     early and keeps nobody waiting for ever.
//   - What is published can be read by every account whatever the umask:
//     directories have mode 0755, files 0644. PublishDir itself and those above
//     it are left as they are.
//
// It does not create DataDir and PublishDir, does not log, and deletes nothing
// that a stage has finished, save what newer results have replaced.
//
// # Where things are
//
//	DataDir/tasks/<task>/
//	    download.part               an unfinished download, to be continued
//	    ingest-0001-k3j9x2mq7b/     the source
//	    transcode-0001-…/           its renditions, storyboard/
//	    metadata-0001-…/            metadata.json, poster.jpg
//	    assemble-0001-…/            all of it, with master.m3u8 and manifest.mpd
//	    transcode-0002-….tmp/       an attempt at work, or what is being removed
//	PublishDir/<task>/
//	    master.m3u8                 the stable addresses; they point into
//	    manifest.mpd                the newest generation
//	    gen-0001-…/                 an older generation, for those who play it
//	    gen-0002-…/                 all of the newest one
//	    .switch-…/                  manifests that are about to take their place
//
// Renditions are hard-linked from stage to stage, so where DataDir and
// PublishDir are on one file system they take up space once; on two, twice.
// The source takes up space beside the original unless the file system has
// reflinks or Config.LinkSources is set.
//
// # What stays, and what may be removed
//
// The directory that is a stage's result stays. Those of successful attempts
// before it are removed by the stages that need it, once they have used it: by
// then it is certainly the result. So the result of every stage stays when a
// task ends, also when it is dead or cancelled, and nothing but a person removes
// it:
//
//   - DataDir/tasks/<task>, as a whole, once all of the task's stages are
//     completed, or once it is dead or cancelled and to remain so. What is
//     published does not need it. The task's stages cannot be run again after
//     that, except all of them, from ingest on, if the source is still where it
//     was. Where renditions are linked, this frees little more than the
//     source's copy.
//   - PublishDir/<task>, as a whole, once nobody is to see the video any more.
//     To have it back, run the publish stage again.
//   - PublishDir/<task>/gen-…, if neither master.m3u8 nor manifest.mpd beside it
//     names it and nobody plays it any more. A Tidier, or publishing the task
//     again, does the same after Config.KeepOld.
//
// Nothing in DataDir/tasks/<task> may be removed while one of its stages waits
// or is at work, nor a single directory in it at any time: the stages after it
// have its name.
//
// # Errors
//
// What lies in the source is permanent: it is not there, not media, encrypted.
// What lies in this host, whatever the task, is waited for, every 5 minutes or
// for as long as the attempt took, without an end and without counting as an
// attempt: ffmpeg is missing, other programs take the processors for as long as
// ffmpeg is waited for, a disk is full, gone or read-only. Any error is put down
// to the disk if DataDir or PublishDir is not there any more. Meanwhile the stage
// is suspended in that process. It is not suspended where the need is the task's
// own: more room than is left above the reserve, its own directory, a source that
// only root may read. What may be the task's own doing counts, and is tried again
// after 5 minutes, and then every hour: too little memory, a missing
// permission, a disk that fails. Renditions that do not match the source are
// made once more. An ffmpeg that hangs, or that somebody killed, is tried again like any
// other error.
package video

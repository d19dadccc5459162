// Package media knows what ffmpeg, HLS and DASH need: it finds out what a file
// is, chooses the qualities to make of it, makes them, checks them, and writes
// the manifests that players ask for. It knows nothing about tasks, stages or
// databases.
//
// A source goes through it in this order:
//
//	info, err := tools.Probe(ctx, src)
//	rungs := media.Ladder(info)
//	out, err := tools.Transcode(ctx, src, info, rungs, dir, progress)
//	err = tools.Check(ctx, info, dir, out)
//	err = media.WriteMaster(dir, out, "")
//	err = tools.WriteMPD(ctx, dir, out)
//
// [Tools.Poster] needs the Info only. [Info], [Rung] and [Output] survive JSON, so
// that each step can run in another process; dir may be moved in between.
//
// # What it promises
//
//   - No file gets another file or a connection opened, whatever is in it and
//     whatever its name: only real containers are read, and only from the path
//     given. A playlist that calls itself .mp4 is refused.
//   - A child never outlives the call that started it. It runs in a process
//     group of its own, which is killed as a whole when ctx ends, when the child
//     stands still or takes more memory than it may, and when it ends by
//     itself and leaves others; on Linux it dies with this process, too.
//   - A child has in its reach, as far as this host can do that, its source, its own
//     folder and the system's programs: no other files, no network, no process.
//   - Neither an exit code nor a header is believed. Durations and frame
//     counts are measured from packets, from decoded frames and from the files
//     written, and [Tools.Check] compares the three.
//   - What can never work is a [*Refused] with a sentence for the sender. All
//     other errors may go away in another attempt.
//   - Nothing is written outside of the folders given, and nothing is kept
//     between calls.
//   - Where ctx is within a span of OpenTelemetry that is recorded, each child has
//     one below it; elsewhere that costs nothing.
//
// # What comes out
//
// CMAF: H.264 High, 4:2:0, BT.709, square pixels, up to 60 frames a second, and
// AAC-LC stereo at 48 kHz in renditions of their own; a keyframe on the first
// frame of every two seconds, at the same frames in all rungs; segments of six
// seconds that HLS and DASH share, of which the last takes in a tail of less than
// half a second. Frames keep their own timestamps: above 60 a second, some are
// dropped; in sources that show one for more than two seconds at a time, it is
// repeated every two seconds, and slides have a keyframe in each segment only; of
// interlaced ones, each field becomes a frame.
//
// # What it does not do
//
// It does not extract subtitles, encrypt, encode on a GPU, resume in the middle
// of a file, or log. It needs ffmpeg 4.4 or later with libx264; with the zscale
// filter HDR sources get right colours, without it near ones.
package media

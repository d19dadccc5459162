// Package media makes an HLS and DASH video of a source file with ffmpeg: it
// probes the source, chooses a ladder of renditions, transcodes, checks the
// output, and writes the playlists. It knows nothing about tasks, stages or
// databases.
//
// Call its functions in this order:
//
//	info, err := tools.Probe(ctx, src)
//	rungs := media.Ladder(info) // or media.LadderWith
//	out, err := tools.Transcode(ctx, src, info, rungs, dir, progress)
//	out.Captions, warnings, err = tools.SourceCaptions(ctx, src, info, dir)
//	err = tools.WriteManifests(ctx, dir, out)
//
// Between Probe and Transcode, [Tools.Trim] makes Info that of a part of the source, and [Tools.AutoQuality] chooses the quality of
// the rungs.
//
// If another host transcodes, call [ExpectedFile] and [MaxTotalBytes] before its files are
// written, and [Tools.CheckDelivered] with the source and the files, in place of Transcode.
//
// A long transcode may be divided among hosts, or into parts that survive a kill. Then these replace Probe and Transcode:
//
//	info, packets, err := tools.ProbePackets(ctx, src)
//	reason, err := tools.PlanCopy(ctx, src, info, packets, rungs) // if a copy is wanted; then the ladder must be made again
//	plan, err := tools.PlanChunks(ctx, src, info, packets, rungs, media.ChunkOptions{})
//	chunk, err := tools.TranscodeChunk(ctx, src, info, rungs, plan, n, chunkDir, progress) // for each chunk
//	sound, err := tools.TranscodeAudio(ctx, src, info, rungs, plan, soundDir, progress)    // if there is audio
//	out, err := tools.JoinChunks(ctx, info, rungs, plan, pieces, dir)
//
// If another host makes a chunk or the audio, call [MaxChunkFileBytes] and [MaxChunkTotalBytes] before its files are
// written, and [Tools.CheckDeliveredChunk] with the files, before JoinChunks. The plan must be made here.
//
// [Tools.Poster] needs only the Info. [Info], [Rung] and [Output] survive JSON,
// so each step can run in another process. The caller may move dir between steps.
//
// # Guarantees
//
//   - A source cannot make ffmpeg open another file or a connection, whatever
//     its content or name. Only media containers are read, and only from the
//     given path. A playlist named .mp4 is rejected.
//   - A child process never outlives the call that started it. Its process
//     group is killed when ctx ends, when it stalls, when it uses too much
//     memory, and when it exits but leaves other processes. On Linux it also
//     dies with this process.
//   - As far as the host allows, a child can access only its source, its own
//     directory and the system's programs: no other files, network or processes.
//     With a hardware encoder it can also use a graphics card.
//   - A hardware encoder that fails is replaced by libx264, in the same call. So is a copy.
//   - Exit codes and headers are not trusted. Durations and frame counts are
//     measured from packets, from decoded frames and from the written files,
//     and [Tools.Check] compares the three.
//   - Initialization segments are written here. Of the encoder's, only the parameters of the decoder remain, if they
//     are those that were asked for.
//   - [Tools.Check] reads every frame of every rendition: its NAL units, OBUs or AAC element, its place in the file, and its
//     times. It does not decode them.
//   - A source that can never work gives a [*RejectedError] with a sentence for
//     its sender. All other errors may go away in another attempt.
//   - Transcode, TranscodeChunk and TranscodeAudio compare their results with the source: the level of the sound over
//     time, and the picture in the middle of every equal part (one a minute, at most six) and at the start of a chunk, as small
//     thumbnails. They return ErrMismatch if these differ. Faults between the compared moments that change neither
//     the number nor the times of frames are not found.
//   - [Tools.CheckDelivered] makes the same checks of the files of a worker, and believes nothing that it says. It writes
//     the playlists and headers itself, and allows only expected names, plain files and limited sizes.
//   - A transcode in chunks has the frames of an undivided one, at the same times, with the same keyframes and
//     segments. PlanChunks computes the times from the packets, before anything is decoded; every chunk compares
//     the decoded frames with them, and JoinChunks the frames in the segments. Every chunk also proves that it needs
//     nothing before the keyframe where its decoder begins. Sources for which that is not certain are not divided,
//     and the plan says why.
//   - Nothing is written outside the given directories. Nothing is kept
//     between calls.
//   - If ctx carries a recording OpenTelemetry span, each child gets a span
//     below it. Otherwise tracing costs nothing.
//
// # Output
//
// The output is CMAF. Video is H.264 High, 4:2:0, BT.709, square pixels, at most
// 60 frames a second; the ladder may have further rungs in HEVC Main and AV1 Main, also with 10 bits in BT.2020 with PQ or HLG. Audio
// is AAC-LC at 48 kHz, in stereo and, if that is asked for, in 5.1, in renditions of its own.
// HLS and DASH share the segments, which last six seconds (6.006 s at NTSC rates) and have one keyframe each, at the same frame in all
// rungs. If one rung is a copy of the source's H.264, which may also be Baseline or Main, those of all rungs begin at its keyframes
// instead, of which it may have more. A last segment
// shorter than half a second is merged into the one before it.
//
// Primaries, matrices and transfers that ffmpeg's zscale filter knows are converted, the transfers of standard displays
// alike, as players show them. Others are a warning. If the size or the pixel shape changes on the way, later pictures
// are fitted into the first one's shape, with bars. ffmpeg 7 does not see a change of the pixel shape: it gives all
// pictures of a stream the first one's, so that a recording that changes between 4:3 and 16:9 is partly stretched.
//
// Frames keep their timestamps, with these exceptions. Above 60 frames a second
// some are dropped. In sources that show a frame for more than two seconds, the
// frame is repeated every two seconds. Each field of an interlaced frame becomes a frame; a telecined film has its own ones. Where the
// clock of a
// transport stream, a program stream or FLV jumps, the parts follow one another
// ([Joins]). Frames without timestamps have those of their stream's frame rate.
//
// # Limits
//
// It does not encrypt, decode or scale on a GPU, resume in the middle
// of a chunk, or log. Transcodes with a hardware encoder are not divided. It needs ffmpeg 4.4 or later with libx264. HDR
// and wide colours need the zscale filter to be exact; without it they are approximate, with a warning.
package media

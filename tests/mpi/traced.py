# traced.py - checks the JSON of `heddle trace` about the ranks of traced.c.
#
# usage: python3 traced.py planted JSON
#        python3 traced.py random MESSAGES JSON
#        python3 traced.py clock RANK LEAST MOST JSON
#        python3 traced.py chrome FILE JSON                the export for Perfetto
#
# clock: the clock of RANK shows between LEAST and MOST seconds more than that of rank 0.
import json
import sys


def expect(fact, *what):
    if not fact:
        print("not true:", *what)
        sys.exit(1)


def check_whole(run):
    for key in ("messages_missing", "sends_without_receive", "receives_without_send", "messages_without_sense"):
        expect(run[key] == 0, key, run[key])


def check_sides(run):
    # each message has a size of its own, so the sizes tell which send a receive got
    for message in run["messages"]:
        sent, received = message["send"], message["receive"]
        expect(sent["bytes"] == received["bytes"], message)
        late = sent["posted_ns"] - received["ended_ns"]
        expect(late <= 2 * run["clocks_within_ns"], "it arrived before it was sent", message)


def check_waits(run):
    for wait in run["waits"]:
        parts = sum(wait[key] for key in ("until_call_ns", "until_ready_ns", "until_posted_ns", "on_the_way_ns"))
        expect(wait["wait_ns"] == parts, wait)


def check_planted(run):
    expect(len(run["messages"]) == 1, run["messages"])
    of = {}
    for wait in run["waits"]:
        of[wait["kind"], wait["rank"], wait["for_rank"]] = wait
    late = of["receive", 2, 1]
    expect(late["tag"] == 7 and late["count"] == 1 and late["bytes"] == 3 * 4096, late)
    expect(late["until_call_ns"] > 0 and late["until_ready_ns"] > 0, late)
    expect(("send", 1, 2) not in of or of["send", 1, 2]["wait_ns"] == 0, of)
    for rank in (1, 2):
        last = of["allreduce", rank, 0]
        expect(last["until_call_ns"] > 0, last)
        for other in (1, 2):
            expect(("allreduce", other, rank) not in of, of)


def check_chrome(run, path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    programs = {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            expect(event["pid"] not in programs, "two processes with one number", event)
            programs[event["pid"]] = event["args"]["name"]
    for rank in range(run["ranks"]):
        expect("rank %d, program" % rank in programs.values(), programs)
        expect(any(name.startswith("rank %d, device 0: " % rank) for name in programs.values()), programs)
    arrows = {}
    for event in events:
        if event.get("cat") == "message" and event["ph"] in "sf":
            arrows.setdefault(event["id"], {})[event["ph"]] = (programs[event["pid"]], event["ts"])
    want = []
    for message in run["messages"]:
        sent, received = message["send"], message["receive"]
        want.append(("rank %d, program" % sent["rank"], sent["posted_ns"], "rank %d, program" % received["rank"], received["ended_ns"]))
    got = [(end["s"][0], round(end["s"][1] * 1000), end["f"][0], round(end["f"][1] * 1000)) for end in arrows.values()]
    expect(sorted(got) == sorted(want), "the arrows of messages", got[:3], want[:3])
    for phase in "be":
        numbers = [event["id"] for event in events if event.get("cat") == "message" and event["ph"] == phase]
        expect(len(numbers) == len(set(numbers)) and len(numbers) >= 2 * len(want), phase, len(numbers))


def main(arguments):
    with open(arguments[-1], encoding="utf-8") as file:
        run = json.load(file)
    check_whole(run)
    check_sides(run)
    check_waits(run)
    if arguments[0] == "planted":
        check_planted(run)
    elif arguments[0] == "random":
        expect(len(run["messages"]) == int(arguments[1]), len(run["messages"]))
        expect(run["collectives_alone"] == 0, run["collectives_alone"])
        # so few ranks show little else than waits for each other
        expect(any(wait["kind"] == "barrier" for wait in run["waits"]), "a barrier")
    elif arguments[0] == "chrome":
        check_chrome(run, arguments[1])
    else:
        begins = {trace["rank"]: trace["clock_ns"] for trace in run["traces"]}
        ahead = (begins[int(arguments[1])] - begins[0]) / 1e9
        expect(float(arguments[2]) < ahead < float(arguments[3]), ahead)
    return 0


sys.exit(main(sys.argv[1:]))

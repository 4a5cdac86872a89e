"""The live page in a real browser, on real services that share a lossy network.

Nothing here sleeps: every wait is the browser's own, for something that the page has to show.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from random import Random
from typing import Any, Final

import pytest
from playwright.async_api import Page, Route, expect

from api.tokens import Tokens
from tests.support.browser import Lab

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(120)]

PICTURE: Final = "RELIABLE_CHANNEL_PAGE_PICTURE"
"""Environment variable: where a picture goes; with docs/images/page.png, ``make browser`` renews the README's."""

PATIENCE: Final = 20_000
"""How long the page may take to show what has to come through the network, milliseconds."""

CHANNEL: Final = "harbour"
SEGMENT_BYTES: Final = 8_000
ACK_TIMEOUT_MS: Final = 1_500
"""The default's five seconds would only be waited for."""

OF_BOB: Final = "Crane 4 is free until noon."
OF_ALICE: Final = "Manifest of the Ingeborg is on its way."


def payload(size: int, seed: int = 1) -> bytes:
    """Return bytes that look like a picture."""
    return b"\x89PNG\r\n\x1a\n" + Random(seed).randbytes(size - 8)


async def open_channel(
    page: Page, sender: str, channel: str = CHANNEL, *, parity: bool = True
) -> None:
    """Open a channel through the form."""
    await page.locator("#open-details").evaluate("details => { details.open = true }")
    await page.get_by_label("Channel id").fill(channel)
    await page.get_by_label("Sender id").fill(sender)
    await page.get_by_label("Parity segments").set_checked(parity)
    await page.get_by_text("More settings").click()
    await page.get_by_label("Segment, bytes").fill(str(SEGMENT_BYTES))
    await page.get_by_label("Ack timeout, ms").fill(str(ACK_TIMEOUT_MS))
    await page.get_by_role("button", name="Open channel").click()
    await expect(page.get_by_role("heading", name=channel)).to_be_visible()
    await is_live(page)


async def is_live(page: Page) -> None:
    """Wait until the page follows the events of its channel."""
    await expect(page.locator("#stream")).to_have_text("live", timeout=PATIENCE)


async def send_text(page: Page, text: str) -> None:
    """Send a text through the form."""
    await page.get_by_label("Message").fill(text)
    await page.get_by_role("button", name="Send").click()


async def send_file(page: Page, name: str, content: bytes) -> None:
    """Send a file through the form."""
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    await page.get_by_label("or a file").set_input_files(file)  # type: ignore[arg-type]
    await page.get_by_role("button", name="Send").click()


def sent(page: Page, text: str) -> Any:
    """Return the row of a message that this page sent."""
    return page.locator("#sent > li").filter(has_text=text)


def received(page: Page, text: str) -> Any:
    """Return the row of a message that this page got."""
    return page.locator("#received > li").filter(has_text=text)


async def is_acknowledged(row: Any) -> None:
    """Wait until all segments of a row are acknowledged, by shape, by words and in the end."""
    await expect(row.locator(".end")).to_have_text("delivered", timeout=PATIENCE)
    await expect(row.locator('.cell:not([data-s="3"])')).to_have_count(0, timeout=PATIENCE)
    label = await row.locator(".bar").get_attribute("aria-label")
    assert re.fullmatch(r"Segments: (\d+) acknowledged of \1", label), label


# --- The whole way -------------------------------------------------------------------------------


async def test_a_file_crosses_a_network_that_loses_a_fifth(lab: Lab) -> None:
    budget = 100 if PICTURE in os.environ else 500
    service = await lab.serve(epoch_period_sec=600, messages_per_epoch=budget)
    alice = await lab.look_at(service, reduced_motion="reduce")
    bob = await lab.look_at(await lab.serve())
    await open_channel(alice, "alice")
    await open_channel(bob, "bob")
    content = payload(40 * SEGMENT_BYTES)

    await send_text(bob, OF_BOB)
    await expect(received(alice, OF_BOB)).to_be_visible(timeout=PATIENCE)
    await send_text(alice, OF_ALICE)
    await send_file(alice, "manifest.png", content)

    row = sent(alice, "manifest.png")
    await is_acknowledged(row)
    await expect(row.locator(".cell")).not_to_have_count(0)
    digest = hashlib.sha256(content).hexdigest()
    arrived = received(bob, digest)
    await expect(arrived).to_contain_text("PNG image", timeout=PATIENCE)
    await expect(row).to_contain_text(digest)
    await expect(row).to_contain_text("to bob")
    async with bob.expect_download() as waiting:
        await arrived.get_by_role("link", name="Download").click()
    download = await waiting.value
    path = await download.path()
    assert await asyncio.to_thread(path.read_bytes) == content
    await expect(alice.locator("#budget")).to_contain_text(f"of {budget} left")
    for words in ("service ok", "node connected", "store ok"):
        await expect(alice.locator("#health")).to_contain_text(words)
    await is_acknowledged(sent(alice, OF_ALICE))
    await is_acknowledged(sent(bob, OF_BOB))
    assert lab.problems() == []
    for service, seen in zip(lab.services, lab.watches, strict=True):
        assert seen.hosts == {f"127.0.0.1:{service.port}"}
    if PICTURE in os.environ:
        await send_file(alice, "photographs.zip", b"PK\3\4" + payload(60 * SEGMENT_BYTES, seed=2))
        await expect(sent(alice, "photographs.zip").locator(".end")).to_have_text(
            "waits for the budget"
        )
        await expect(sent(alice, "photographs.zip").locator('[data-s="3"]').nth(9)).to_be_visible()
        await expect(alice.locator("#budget")).to_have_text(re.compile(r"^\d of 100 left"))
        await alice.set_viewport_size({"width": 1280, "height": 800})
        await alice.evaluate("document.activeElement.blur()")
        await alice.screenshot(path=os.environ[PICTURE])


async def test_a_channel_is_opened_and_used_by_keyboard_only(lab: Lab) -> None:
    page = await lab.look_at(await lab.serve())
    keyboard = page.keyboard

    async def tab_to(target: str) -> None:
        for _ in range(40):
            if await page.evaluate("name => document.activeElement.matches(name)", target):
                outline = await page.evaluate(
                    "getComputedStyle(document.activeElement).outlineStyle"
                )
                assert outline != "none", f"{target} does not show that it has the focus"
                return
            await keyboard.press("Tab")
        pytest.fail(f"Tab does not lead to {target}")

    await expect(page.locator("#no-channels")).to_be_visible()
    await tab_to("#channel-id")
    await keyboard.type("pier/7 ünder")
    await tab_to("#sender-id")
    await keyboard.type("alice")
    await tab_to("#parity")
    await keyboard.press("Space")
    await keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="pier/7 ünder")).to_be_visible()
    await expect(page.locator("#facts")).to_contain_text("/reliable-channel/1/pier-7-nder/proto")
    await expect(page.locator("#facts")).to_contain_text("parityoff")
    await expect(page.get_by_label("Message")).to_be_focused()
    await keyboard.type("by hand")
    await keyboard.press("Control+Enter")
    await expect(sent(page, "by hand").locator(".cell")).to_have_count(1)
    await tab_to("#close")
    await keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="Close pier/7 ünder?")).to_be_visible()
    await keyboard.press("Escape")
    await expect(page.locator("#close")).to_be_focused()
    await keyboard.press("Enter")
    await tab_to("#purge")
    await keyboard.press("Space")
    await tab_to("#close-confirm")
    await expect(page.locator("#close-confirm")).to_have_text("Close and forget")
    await keyboard.press("Enter")
    await expect(page.locator("#no-channels")).to_be_visible()
    await expect(page.locator("#welcome")).to_be_visible()
    assert lab.problems() == []


# --- What goes wrong -----------------------------------------------------------------------------


async def test_a_page_reconnects_after_a_restart_and_misses_nothing(lab: Lab) -> None:
    alice = await lab.look_at(await lab.serve())
    bob = await lab.look_at(await lab.serve())
    await open_channel(alice, "alice")
    await open_channel(bob, "bob")
    await send_text(alice, "before")
    await expect(received(bob, "before")).to_be_visible(timeout=PATIENCE)

    await lab.services[1].stop()
    await expect(bob.locator("#stream")).to_contain_text("reconnecting", timeout=PATIENCE)
    await expect(bob.get_by_role("button", name="Reconnect now")).to_be_visible()
    await send_text(alice, "meanwhile")
    await expect(sent(alice, "meanwhile").locator(".end")).not_to_have_text("sending")
    await lab.services[1].start()
    await is_live(bob)

    await send_text(alice, "after")
    for text in ("before", "meanwhile", "after"):
        await expect(received(bob, text)).to_have_count(1, timeout=PATIENCE)
    await is_acknowledged(sent(alice, "meanwhile"))
    numbers = [
        int(text)
        for text in await bob.locator("#events .number").all_inner_texts()
        if text != "live"
    ]
    assert numbers == list(range(numbers[0], 0, -1)), "events came twice, or not at all"


async def test_a_lost_answer_is_asked_for_again_and_sends_nothing_twice(lab: Lab) -> None:
    alice = await lab.look_at(await lab.serve())
    bob = await lab.look_at(await lab.serve())
    await open_channel(alice, "alice")
    await open_channel(bob, "bob")
    keys: list[str | None] = []

    async def swallow_first(route: Route) -> None:
        keys.append(await route.request.header_value("Idempotency-Key"))
        if len(keys) == 1:
            await route.fetch()  # it is stored, but nobody hears of it
            await route.abort()
        else:
            await route.continue_()

    await alice.route("**/messages*", swallow_first)
    await send_text(alice, "only once")
    await is_acknowledged(sent(alice, "only once"))
    await send_text(alice, "last")
    await expect(received(bob, "last")).to_be_visible(timeout=PATIENCE)
    await expect(received(bob, "only once")).to_have_count(1)
    await expect(alice.locator("#sent > li")).to_have_count(2)
    assert keys[0] == keys[1]
    assert len(set(keys)) == 2
    assert re.fullmatch(r"page-[0-9a-f]{32}", str(keys[0]))


async def test_texts_of_others_are_text(lab: Lab) -> None:
    hostile = "<img src=x onerror=\"document.title='taken over'\"><b>bold</b>"
    alice = await lab.look_at(await lab.serve())
    bob = await lab.look_at(await lab.serve())
    await open_channel(alice, hostile)
    await open_channel(bob, "bob")
    await send_text(alice, hostile)
    row = received(bob, hostile)
    await expect(row).to_be_visible(timeout=PATIENCE)
    assert await row.locator(".body").inner_text() == hostile
    assert await row.locator("bdi").inner_text() == hostile
    assert await bob.locator("img").count() == 0
    assert await bob.title() != "taken over"
    assert lab.problems() == []


async def test_problem_documents_are_shown(lab: Lab) -> None:
    page = await lab.look_at(await lab.serve())
    await expect(page.locator("#no-channels")).to_be_visible()
    await page.get_by_label("Channel id").fill("quay")
    await page.get_by_label("Sender id").fill("alice")
    await page.get_by_label("Content topic").fill("no topic")
    async with page.expect_response("**/v1/channels") as waiting:
        await page.get_by_role("button", name="Open channel").click()
    problem = await (await waiting.value).json()
    error = page.get_by_role("alert").filter(has_text=problem["title"])
    await expect(error).to_contain_text(problem["detail"])
    await expect(page.get_by_label("Channel id")).to_have_value("quay")

    await page.get_by_label("Channel id").fill("..")
    await page.get_by_role("button", name="Open channel").click()
    await expect(page.locator("#open-error")).to_contain_text("cannot address")


async def test_a_payload_that_is_too_large_is_not_sent(lab: Lab) -> None:
    page = await lab.look_at(await lab.serve())
    await open_channel(page, "alice", parity=False)
    content = b"\0" * (256 * SEGMENT_BYTES + 1)
    file = {"name": "big", "mimeType": "application/octet-stream", "buffer": content}
    await page.get_by_label("or a file").set_input_files(file)  # type: ignore[arg-type]
    await expect(page.locator("#size")).to_contain_text("too large")
    await expect(page.get_by_role("button", name="Send")).to_be_disabled()


async def test_a_protected_service_asks_for_a_token_and_keeps_to_its_role(lab: Lab) -> None:
    tokens = Tokens(read=["only-looking-0123456789"], write=["all-of-it-0123456789abc"])
    service = await lab.serve(tokens)
    page = await lab.look_at(service)
    notice = page.locator("#notice")
    await expect(notice).to_contain_text("token")
    assert await page.evaluate("fetch('/v1/channels').then(answer => answer.status)") == 401

    await page.get_by_label("Access token").fill("all-of-it-0123456789abc")
    await page.get_by_role("button", name="Use", exact=True).click()
    await expect(notice).to_be_empty()
    await open_channel(page, "alice")
    await send_text(page, "with a token")
    await expect(sent(page, "with a token").locator(".cell")).to_have_count(1)
    assert await page.evaluate("JSON.stringify(localStorage)") == "{}"
    assert "all-of-it" not in page.url
    await page.reload()
    await is_live(page)

    await page.get_by_label("Access token").fill("only-looking-0123456789")
    await page.get_by_role("button", name="Use", exact=True).click()
    await is_live(page)
    await send_text(page, "without leave")
    row = sent(page, "without leave")
    await expect(row.locator(".end")).to_have_text("refused")
    await expect(row.get_by_role("button", name="Try again")).to_be_visible()

    await page.get_by_label("Access token").fill("")
    await page.get_by_role("button", name="Use", exact=True).click()
    await expect(page.locator("#stream")).to_contain_text("token")
    other = await lab.look_at(service)
    await expect(other.locator("#notice")).to_contain_text("token")


# --- Much at once --------------------------------------------------------------------------------


async def test_the_page_stays_small_however_much_happens(lab: Lab) -> None:
    count = 150
    alice = await lab.look_at(await lab.serve(node="memory://page-test-crowd"))
    bob = await lab.look_at(await lab.serve(node="memory://page-test-crowd"))
    await open_channel(alice, "alice")
    await open_channel(bob, "bob")
    send_all = """async ([path, count]) => {
        for (let i = 1; i <= count; i += 1) {
            const answer = await fetch(path, { method: "POST", body: `message ${i}`,
                headers: { "Content-Type": "application/octet-stream" } });
            if (answer.status !== 202) throw new Error(`${i}: ${answer.status}`);
        }
    }"""
    await alice.evaluate(send_all, [f"/v1/channels/{CHANNEL}/messages", count])
    await expect(received(bob, f"message {count}")).to_be_visible(timeout=PATIENCE)
    newest = alice.locator("#sent > li").first
    await expect(newest.locator(".end")).to_have_text("delivered", timeout=PATIENCE)
    for page in (alice, bob):
        assert await page.locator("#sent > li").count() <= 40
        assert await page.locator("#received > li").count() <= 60
        assert await page.locator("#events > li").count() <= 200
        assert await page.evaluate("document.querySelectorAll('*').length") < 3_000
    await bob.get_by_role("button", name="Pause").click()
    first = await bob.locator("#events > li").first.inner_text()
    await send_text(alice, "while paused")
    await expect(received(bob, "while paused")).to_be_visible(timeout=PATIENCE)
    assert await bob.locator("#events > li").first.inner_text() == first
    await bob.get_by_role("button", name="Go on").click()
    assert await bob.locator("#events > li").first.inner_text() != first
    assert lab.problems() == []


# --- Who can use it ------------------------------------------------------------------------------

UNLABELLED: Final = """() => [...document.querySelectorAll(
        "input, textarea, button, [role=img], [role=meter], [tabindex='0']")]
    .filter(node => !(node.labels?.length || node.ariaLabel || node.getAttribute("aria-labelledby")
        || (node.tagName === "BUTTON" && node.textContent.trim())))
    .map(node => node.outerHTML.slice(0, 100))"""

STRUCTURE: Final = """() => {
    const problems = [], ids = [...document.querySelectorAll("[id]")].map(node => node.id);
    ids.filter((id, i) => ids.indexOf(id) !== i).forEach(id => problems.push(`two of #${id}`));
    for (const name of ["for", "aria-labelledby", "aria-describedby"])
        for (const node of document.querySelectorAll(`[${name}]`))
            for (const id of node.getAttribute(name).split(/\\s+/))
                if (!document.getElementById(id)) problems.push(`${name} names no #${id}`);
    for (const name of ["main", "nav", "header", "aside", "h1"])
        if (document.querySelectorAll(name).length !== 1) problems.push(`not one ${name}`);
    if (!document.documentElement.lang) problems.push("no language");
    const ordered = document.querySelector("[tabindex]:not([tabindex='0']):not([tabindex='-1'])");
    if (ordered) problems.push("an order of its own");
    return problems;
}"""

FAINT: Final = """() => {
    const parse = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = node => {
        for (let at = node; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const ratio = (a, b) => {
        const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
        return (x + 0.05) / (y + 0.05);
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
        if (node.closest(":disabled, script")) continue;
        const value = ratio(parse(getComputedStyle(node).color), behind(node));
        if (value < 4.5) found.push(`${value.toFixed(2)} ${node.className || node.tagName}: ${node.textContent}`);
    }
    for (const node of document.querySelectorAll("input:not([type=checkbox], [type=file]), textarea, button")) {
        if (!node.checkVisibility() || node.disabled || node.closest("#channels")) continue;
        const value = ratio(parse(getComputedStyle(node).borderTopColor), behind(node.parentElement));
        if (value < 3) found.push(`${value.toFixed(2)} border of ${node.id || node.textContent}`);
    }
    return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everything_is_labelled_and_legible(lab: Lab, scheme: str) -> None:
    service = await lab.serve(epoch_period_sec=600, messages_per_epoch=500)
    page = await lab.look_at(service, color_scheme=scheme, reduced_motion="reduce")
    await open_channel(page, "alice")
    await send_text(page, "one of ours")
    await send_file(page, "picture.png", payload(3 * SEGMENT_BYTES))
    await expect(sent(page, "picture.png").locator(".cell")).to_have_count(3)
    await page.locator("#open-details").evaluate("details => { details.open = true }")
    await page.get_by_text("All counters").click()
    assert await page.evaluate(UNLABELLED) == []
    assert await page.evaluate(STRUCTURE) == []
    assert await page.evaluate(FAINT) == []
    await page.get_by_role("button", name="Close channel").click()
    assert await page.evaluate(FAINT) == []
    moving = "document.getAnimations().length"
    assert await page.evaluate(moving) == 0
    assert lab.problems() == []


async def test_a_phone_shows_everything_without_scrolling_sideways(lab: Lab) -> None:
    page = await lab.look_at(
        await lab.serve(), viewport={"width": 360, "height": 740}, has_touch=True
    )
    await open_channel(page, "a" * 200, "channel-" + "0123456789" * 20)
    await send_text(page, "x" * 600)
    await send_file(page, "file-" + "name" * 40 + ".png", payload(3 * SEGMENT_BYTES))
    await expect(sent(page, "file-").locator(".hash")).to_be_visible()
    await page.locator("#open-details").evaluate("details => { details.open = true }")
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    outside = """() => [...document.querySelectorAll("body *")].filter(node => node.checkVisibility()
        && !node.closest(".hidden-text, .skip") && node.getBoundingClientRect().right > 361)
        .map(node => node.outerHTML.slice(0, 80))"""
    assert await page.evaluate(outside) == []


async def test_the_policy_is_there_and_holds(lab: Lab) -> None:
    service = await lab.serve()
    page = await lab.look_at(service)
    answer = await page.request.get(service.url)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert lab.problems() == []
    # What does not come with the page is not run: the console says so.
    await page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'hacked = 1'}))"
    )
    assert await page.evaluate("typeof hacked") == "undefined"
    assert any("Content Security Policy" in problem for problem in lab.problems())

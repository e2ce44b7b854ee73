"""The virtual clock."""

from sievenet.simulation import VirtualClock


def test_calls_are_made_in_order():
    queue, order = VirtualClock(), []
    queue.call_at(2.0, order.append, "b")
    queue.call_at(1.0, order.append, "a")
    queue.call_at(2.0, order.append, "c")
    assert len(queue) == 3
    queue.run(until=1.5)
    assert (order, queue.time()) == (["a"], 1.5)
    queue.call_at(0.0, order.append, "late")  # the past is now
    queue.run()
    assert order == ["a", "late", "b", "c"]
    assert not queue.step()
    assert (queue.time(), queue.steps) == (2.0, 4)
